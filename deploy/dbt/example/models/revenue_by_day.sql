{{ config(
    materialized="incremental",
    incremental_strategy="append",
    pre_hook="{{ tidemark.forget_changed('orders_by_hour', 'day') }}",
) }}

select
    _day as day,
    sum(orders) as orders,
    sum(revenue) as revenue,
    '{{ invocation_id }}' as run
from {{ source("orders", "orders_by_hour_current") }}
where {{ tidemark.is_changed("orders_by_hour", "_day") }}
group by _day
