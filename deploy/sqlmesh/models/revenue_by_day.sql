MODEL (
  name acme.revenue_by_day,
  kind INCREMENTAL_BY_TIME_RANGE (time_column day),
  start '2026-01-01',
  columns (day date, orders bigint, revenue decimal(20, 2), built_at timestamptz)
);

SELECT _day AS day, sum(orders) AS orders, sum(revenue) AS revenue, now() AS built_at
FROM @current('orders', 'orders_by_hour')
WHERE _day BETWEEN @start_ds AND @end_ds
GROUP BY _day
