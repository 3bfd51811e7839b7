-- Customer distribution: how many customers have how many orders.
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
