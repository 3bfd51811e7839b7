{{ config(
    materialized="incremental",
    incremental_strategy="append",
    pre_hook="{{ tidemark.forget_changed('orders_by_hour', 'week', \"date_trunc('week', {})\") }}",
) }}

{% set week = "date_trunc('week', _day)" %}
select
    {{ week }} as week,
    sum(orders) as orders,
    '{{ invocation_id }}' as run
from {{ source("orders", "orders_by_hour_current") }}
where {{ tidemark.is_changed("orders_by_hour", week, "date_trunc('week', {})") }}
group by {{ week }}
