-- Orders of each customer, without those that ask for something special.
-- key: c_custkey
select
    c_custkey,
    count(o_orderkey) as c_count
from
    customer left outer join orders on
        c_custkey = o_custkey
        and o_comment not like '%special%requests%'
group by
    c_custkey
