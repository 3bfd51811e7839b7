{#
  A condition that is true for the rows of a model, or of what it reads, that are computed again.

  `view` names the view of Tidemark that the model reads, `column` the SQL whose value is compared with each part that
  changed. `through` is how a model of a coarser grain makes its own part of one: "date_trunc('week', {})".

  The parts are those of `tidemark changed VIEW --json`, handed over as
  --vars "{changed: {VIEW: $(tidemark changed VIEW --since REVISION --json)}}". A model that is built for the first
  time, or with --full-refresh, is computed as a whole, and so is one whose view is told about from its beginning.
#}
{% macro is_changed(view, column, through="{}") -%}
  {%- if not execute or not is_incremental() -%}
    true
  {%- else -%}
    {%- set told = var('changed', {}).get(view) -%}
    {%- if told is none -%}
      {{ exceptions.raise_compiler_error(
        "nobody says what changed of " ~ view ~ ". Give --vars \"{changed: {" ~ view ~ ": $(tidemark changed " ~ view
        ~ " --since REVISION --json)}}\", or --full-refresh."
      ) }}
    {%- elif told['since'] < 0 -%}
      true
    {%- else -%}
      {%- set by = told['by'] -%}
      {%- if by | length != 1 -%}
        {{ exceptions.raise_compiler_error(
          view ~ " is told by " ~ by | join(', ') ~ ", and a model is restated by one column: tidemark changed --by COLUMN."
        ) }}
      {%- endif -%}
      {%- set is_date = by[0] == '_day' -%}
      {%- set parts = [] -%}
      {%- for part in told['parts'] -%}
        {%- set value = part[by[0]] -%}
        {%- if value is none -%}
          {%- do parts.append(column ~ " is null") -%}
        {%- else -%}
          {%- set text = dbt.string_literal(dbt.escape_single_quotes(value | string)) if value is string else value | string -%}
          {%- set literal = "cast(" ~ text ~ " as date)" if is_date else text -%}
          {%- do parts.append(column ~ " = " ~ through.replace("{}", literal)) -%}
        {%- endif -%}
      {%- endfor -%}
      ({{ parts | unique | join(" or ") if parts else "false" }})
    {%- endif -%}
  {%- endif -%}
{%- endmacro %}

{#
  A hook before an incremental model that takes out what `is_changed` computes again; take the same arguments, with the
  model's own column. A part of which nothing is left is then gone from the model, too.
#}
{% macro forget_changed(view, column, through="{}") -%}
  {%- if is_incremental() -%}
    delete from {{ this }} where {{ tidemark.is_changed(view, column, through) }}
  {%- else -%}
    select 1
  {%- endif -%}
{%- endmacro %}
