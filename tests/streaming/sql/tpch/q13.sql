-- Customer distribution: how many customers have how many orders.
-- A count is no key of rows that change, so the inner query is a view of its own.
-- key: c_count
select
    c_count,
    count(*) as custdist
from
    q13_orders_of_customers
group by
    c_count
order by
    custdist desc,
    c_count desc
