"""Chat templates in the manner of ten families, written for tests, and conversations for them."""

from __future__ import annotations

HEADERS = r"""
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set system = "" %}
    {%- set turns = messages %}
{%- endif %}
{{- "<|head|>system<|/head|>\n\n" }}
{{- "Knowledge up to: May 2024\n" }}
{%- if date_string is not defined %}
    {%- set date_string = strftime_now("%Y") %}
{%- endif %}
{{- "Year: " + date_string + "\n\n" + system + "<|turn_ends|>" }}
{%- for turn in turns %}
    {{- '<|head|>' + turn['role'] + '<|/head|>\n\n' + turn['content'] | trim + '<|turn_ends|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|head|>assistant<|/head|>\n\n' }}
{%- endif %}
"""

CHATML = r"""{%- if tools %}
    {{- '<|im_start|>system\nTools: ' + tools | tojson + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(last=messages | length - 1) %}
{%- for message in messages[::-1] %}
    {%- if message.role == 'user' and ns.last == messages | length - 1 %}
        {%- set ns.last = messages | length - 1 - loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role == 'assistant' and loop.index0 < ns.last and '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
"""

ALTERNATING = r"""{{ bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {{- raise_exception('There is no system role here') }}
{%- endif %}
{%- for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Roles must take turns: user, assistant, user') }}
    {%- endif %}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] %}
    {{- '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<start_of_turn>model\n' }}
{%- endif %}"""

BARS = r"""{% for message in messages %}
{% if message['role'] in ['system', 'user'] %}
{{ '<|' + message['role'] + '|>
' + message['content'] + '<|end|>
' }}
{% elif message['role'] == 'assistant' %}
{% generation %}{{ '<|assistant|>
' + message['content'] + '<|end|>
' }}{% endgeneration %}
{% endif %}
{% endfor %}
{% if add_generation_prompt %}{{ '<|assistant|>
' }}{% else %}{{ eos_token }}{% endif %}
"""

BRACKETS = r"""{%- if messages[0].role == "system" %}
    {%- set system = messages[0].content %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message.role == "user") != (loop.index0 is even) %}
        {{- raise_exception("After the optional system message, roles must alternate.") }}
    {%- endif %}
    {%- if message.role == "user" %}
        {%- if loop.last and system is defined %}
            {{- "[INST] " + system + "\n\n" + message.content + " [/INST]" }}
        {%- else %}
            {{- "[INST] " + message.content + " [/INST]" }}
        {%- endif %}
    {%- elif message.role == "assistant" %}
        {{- " " + message.content | trim + eos_token }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are known, not " + message.role) }}
    {%- endif %}
{%- endfor %}
"""

NAMED_SYSTEM = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a small and helpful model<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

LAST_ENDS = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ '<|system|>\n' + message['content'] + '\n' }}{% elif message['role'] == 'user' %}"
    "{{ '<|user|>\n' + message['content'] + '\n' }}{% elif message['role'] == 'assistant' %}"
    "{% if not loop.last %}{{ '<|assistant|>\n' + message['content'] + eos_token + '\n' }}"
    "{% else %}{{ '<|assistant|>\n' + message['content'] + eos_token }}{% endif %}{% endif %}"
    "{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}{% endfor %}"
)

ENDED = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

CAPITALS = r"""{% if messages[0]['role'] == 'system' %}{% set at = 1 %}
{{ messages[0]['content'] + ' ' -}}
{% else %}{% set at = 0 %}{{ 'A curious user talks to a polite assistant. ' -}}{% endif %}
{%- for message in messages[at:] %}
{%- if message['role'] == 'tool' %}{% continue %}{% endif %}
{%- if message['role'] == 'user' -%}
USER: {{ message['content'] }}{{ ' ' }}
{%- else -%}
ASSISTANT: {{ message['content'] }}{{ eos_token }}
{%- endif -%}
{%- endfor -%}
{% if add_generation_prompt %}ASSISTANT:{% endif %}"""

FULL_WIDTH = r"""{%- if add_generation_prompt is not defined %}
    {%- set add_generation_prompt = false %}
{%- endif %}
{%- set ns = namespace(system='', first=true) %}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}
        {%- set ns.system = ns.system + ('' if ns.first else '\n\n') + message['content'] %}
        {%- set ns.first = false %}
    {%- endif %}
{%- endfor %}
{{- bos_token ~ ns.system }}
{%- for message in messages %}
    {%- if message['role'] == 'user' %}
        {{- '<｜User｜>' + message['content'] }}
    {%- elif message['role'] == 'assistant' %}
        {%- set content = message['content'] %}
        {%- if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}
        {{- '<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<｜Assistant｜><think>\n' }}{%- endif %}"""

# In the manner of Llama 3, Qwen, Gemma, Phi-3, Mistral, SmolLM, OLMo, Zephyr, Vicuna, DeepSeek.
TEMPLATES = {
    "llama-3": HEADERS,
    "qwen": CHATML,
    "gemma": ALTERNATING,
    "phi-3": BARS,
    "mistral": BRACKETS,
    "smollm": NAMED_SYSTEM,
    "olmo": LAST_ENDS,
    "zephyr": ENDED,
    "vicuna": CAPITALS,
    "deepseek": FULL_WIDTH,
}
# Tokens that a template may write: special ones, and those of no special kind.
SPECIAL = (
    *("<s>", "</s>", "<|head|>", "<|/head|>", "<|turn_ends|>", "<|im_start|>", "<|im_end|>"),
    *("<start_of_turn>", "<end_of_turn>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
    *("[INST]", "[/INST]", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
)
ADDED = ("<think>", "</think>")


def turns(*texts: str, system: str | None = None) -> list[dict[str, str]]:
    """Return a conversation: what the user and the assistant say in turn."""
    begin = [] if system is None else [{"role": "system", "content": system}]
    roles = ("user", "assistant")
    return begin + [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]


CONVERSATIONS = {
    "one": turns("Hello"),
    "system": turns("Who are you?", system='  You are a <b>poet</b> & "kind". \n'),
    "several": turns("a\nb", " An answer ", "And then?\n\n", "That.", "Why?", system="Be short."),
    "thought": turns("2 + 2?", "<think>\nEasy.\n</think>\n\n4", "And 3 + 3?"),
    "answered": turns("é 漢字 \u2028 🙂", "Ja. </b>\t\\n {{ 7 * 7 }} {% if %}"),
    "odd roles": [{"role": "assistant", "content": "I begin"}, {"role": "user", "content": "No"}],
    "a tool": [*turns("Time?"), {"role": "tool", "content": "12:00"}],
    "two systems": [*turns("a", system="x"), {"role": "system", "content": "y"}],
    "empty": turns(""),
}
