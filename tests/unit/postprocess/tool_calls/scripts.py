"""Answers with tool calls as models write them, and what a client has to get of each."""

from collections.abc import Callable
from dataclasses import dataclass

from stages.postprocess.harmony import harmony
from stages.postprocess.splitter import Splitter
from stages.postprocess.tool_calls.constrained import json_arguments, json_list
from stages.postprocess.tool_calls.hermes import granite, hermes, nemotron
from stages.postprocess.tool_calls.llama3 import llama3
from stages.postprocess.tool_calls.mistral import mistral
from stages.postprocess.tool_calls.pythonic import lfm2, pythonic
from stages.postprocess.tool_calls.sections import DEEPSEEK, KIMI_K2, sections
from stages.postprocess.tool_calls.tagged_values import GLM45, MINIMAX_M2, QWEN3_CODER, tagged_values
from tests.unit.postprocess.splitting import Split, SplitCall


@dataclass(frozen=True)
class Script:
    """`text` through a new `splitter` has to become `content`, `reasoning` and `calls`."""

    splitter: Callable[[], Splitter]
    text: str
    content: str = ""
    calls: tuple[SplitCall, ...] = ()
    reasoning: str = ""

    @property
    def expected(self) -> Split:
        return Split(self.content, self.reasoning, list(self.calls), len(self.text))


def whole(name: str, arguments: str = "{}") -> SplitCall:
    return SplitCall(name, arguments, complete=True)


def open_(name: str, arguments: str = "") -> SplitCall:
    return SplitCall(name, arguments, complete=False)


def qwen3_coder() -> Splitter:
    return tagged_values(QWEN3_CODER, ["f s", "f t"])


def minimax_m2() -> Splitter:
    return tagged_values(MINIMAX_M2)


def glm45() -> Splitter:
    return tagged_values(GLM45)


def kimi_k2() -> Splitter:
    return sections(KIMI_K2)


def deepseek() -> Splitter:
    return sections(DEEPSEEK)


def named() -> Splitter:
    return json_arguments("f")


F = '{"name": "f", "arguments": {"id": 42}}'
G = '{"arguments": {"x": [1, {"y": "}]"}]}, "name": "g"}'
CALL_F = whole("f", '{"id": 42}')
CALL_G = whole("g", '{"x": [1, {"y": "}]"}]}')
ODD = r'{"a": "\"}{\\", "b": "</tool_call> [TOOL_CALLS] <|call", "ü": "😀\u00e9\ud83d\ude00", "n": -1.5e3}'

HERMES = {
    "one": Script(hermes, f"<tool_call>\n{F}\n</tool_call>", calls=(CALL_F,)),
    "several, white space around": Script(
        hermes, f"\n\n<tool_call>{F}</tool_call>\n<tool_call>\n{G}\n</tool_call>\n", calls=(CALL_F, CALL_G)
    ),
    "text around": Script(hermes, f"Hi\n<tool_call>{F}</tool_call>\n bye", "Hi\n\n bye", (CALL_F,)),
    "half a character in the name": Script(
        hermes, r'<tool_call>{"name": "f\udc00\ud83d\ude00\ud83d"}</tool_call>', calls=(whole("f\ufffd😀\ufffd"),)
    ),
    "several in one pair of tags": Script(hermes, f"<tool_call>{F}\n{G}</tool_call>", calls=(CALL_F, CALL_G)),
    "no closing tag": Script(hermes, f"<tool_call>{F}", calls=(CALL_F,)),
    "no closing brace": Script(hermes, f"<tool_call>{F[:-1]}</tool_call>", "</tool_call>", (CALL_F,)),
    "markup in strings": Script(
        hermes, f'<tool_call>{{"name": "f", "arguments": {ODD}}}</tool_call>', calls=(whole("f", ODD),)
    ),
    "arguments in a string": Script(
        hermes,
        r'<tool_call>{"name": "f", "arguments": "{\"a\":\u0031, \"b\": \"\ud83d\ude00\\n\"}"}</tool_call>',
        calls=(whole("f", r'{"a":1, "b": "😀\n"}'),),
    ),
    "lists of objects": Script(
        hermes,
        '<tool_call>{"name":"f","arguments":{"numbers":[{"a":[[1],[{"b":"{a,b"}]]}]}}</tool_call>',
        calls=(whole("f", '{"numbers":[{"a":[[1],[{"b":"{a,b"}]]}]}'),),
    ),
    "no arguments": Script(hermes, '<tool_call>{"name":"f"}</tool_call>', calls=(whole("f"),)),
    "null arguments": Script(hermes, '<tool_call>{"name":"f","arguments":null}</tool_call>', calls=(whole("f"),)),
    "a broken line in a string": Script(
        hermes,
        '<tool_call>{"name":"f","arguments":{"a": "x\n\ty"}}</tool_call>',
        calls=(whole("f", r'{"a": "x\n\ty"}'),),
    ),
    "more keys": Script(
        hermes,
        '<tool_call>{"id": 7, "type": "function", "name": "f", "arguments": {}, "x": [{"y": null}]}</tool_call>',
        calls=(whole("f"),),
    ),
    "nested": Script(
        hermes,
        '<tool_call>{"name":"f","arguments":[1]}</tool_call>!',
        content='<tool_call>{"name":"f","arguments":[1]}</tool_call>!',
    ),
    "no JSON": Script(hermes, "<tool_call>f(1)</tool_call> \n", "<tool_call>f(1)</tool_call> \n"),
    "other JSON": Script(hermes, '<tool_call>{"a": 1}</tool_call>', '<tool_call>{"a": 1}</tool_call>'),
    "a tag before a call": Script(hermes, f"<tool_call><tool_call>{F}</tool_call>", "<tool_call>", (CALL_F,)),
    "almost a tag": Script(hermes, "a <tool_cal> <tool_call", "a <tool_cal> <tool_call"),
    "white space alone": Script(hermes, " \n ", " \n "),
    "nothing": Script(hermes, ""),
    "arguments that are no JSON": Script(
        hermes, '<tool_call>{"name":"f","arguments":{"a": yes}}</tool_call>', calls=(open_("f", '{"a": yes}'),)
    ),
    "NaN is no JSON": Script(
        hermes, '<tool_call>{"name":"f","arguments":{"a": NaN}}</tool_call>', calls=(open_("f", '{"a": NaN}'),)
    ),
    "garbage behind the arguments": Script(
        hermes, '<tool_call>{"name":"f","arguments":{} oh</tool_call>', "oh</tool_call>", (whole("f"),)
    ),
}

TAGGED = {
    "granite": Script(granite, f"<|tool_call|>[{F}, {G}]", calls=(CALL_F, CALL_G)),
    "phi": Script(granite, f"<|tool_call|>[{F}]<|/tool_call|>", calls=(CALL_F,)),
    "nemotron": Script(nemotron, f"So <TOOLCALL>[{F}, {G}]</TOOLCALL>", "So ", (CALL_F, CALL_G)),
}

LLAMA = {
    "one": Script(llama3, '{"name": "f", "parameters": {"id": 42}}', calls=(CALL_F,)),
    "tag": Script(llama3, '<|python_tag|>{"name": "f", "parameters": {"id": 42}}', calls=(CALL_F,)),
    "semicolon": Script(llama3, f" {F}; {G}\n", calls=(CALL_F, CALL_G)),
    "tags and semicolons": Script(llama3, f"<|python_tag|>{F};<|python_tag|>{G}", calls=(CALL_F, CALL_G)),
    "one a line": Script(llama3, f"{F}\n{G}", calls=(CALL_F, CALL_G)),
    "type": Script(llama3, '{"type": "function", "function": "f", "parameters": {"id": 42}}', calls=(CALL_F,)),
    "a list": Script(llama3, f"[{F}, {G}]", calls=(CALL_F, CALL_G)),
    "text before a tag": Script(llama3, f"So: <|python_tag|>{F}", "So: ", (CALL_F,)),
    "text behind": Script(llama3, f"{F} done {G}", f" done {G}", (CALL_F,)),
    "an object with a name": Script(
        llama3, '{\n  "name": "Bingo",\n  "age": 30\n}', '{\n  "name": "Bingo",\n  "age": 30\n}'
    ),
    "other JSON": Script(llama3, ' {"title": "x", "name": "y"}', ' {"title": "x", "name": "y"}'),
    "a name alone is no call": Script(llama3, '{"name": "Bob"}', '{"name": "Bob"}'),
    "a list of others": Script(llama3, "[1, 2]", "[1, 2]"),
    "code": Script(llama3, "<|python_tag|>search(query='x')", "<|python_tag|>search(query='x')"),
}

MISTRAL = {
    "list": Script(mistral, f"[TOOL_CALLS] [{F}, {G}]", calls=(CALL_F, CALL_G)),
    "object": Script(mistral, f"[TOOL_CALLS]{F}", calls=(CALL_F,)),
    "name": Script(mistral, '[TOOL_CALLS]f[ARGS]{"id": 42}', calls=(CALL_F,)),
    "names": Script(
        mistral, 'So.[TOOL_CALLS]f[ARGS]{"id": 42}[TOOL_CALLS]g.h-1[ARGS]{}', "So.", (CALL_F, whole("g.h-1"))
    ),
    "ids": Script(mistral, '[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"id": 42}', calls=(CALL_F,)),
    "id behind": Script(
        mistral, '[TOOL_CALLS][{"name": "f", "arguments": {"id": 42}, "id": "abcdefghi"}]', calls=(CALL_F,)
    ),
    "no [ARGS]": Script(mistral, '[TOOL_CALLS]f {"id": 42}', calls=(CALL_F,)),
    "empty": Script(mistral, "[TOOL_CALLS][]"),
    "text": Script(mistral, "[TOOL_CALLS] are these [TOOL", "[TOOL_CALLS] are these [TOOL"),
    "second is none": Script(mistral, f"[TOOL_CALLS][{F}, 5]", " 5]", (CALL_F,)),
}

LFM2 = {
    "calls": Script(lfm2, "<|tool_call_start|>[f(id=42), g()]<|tool_call_end|>So", "So", (CALL_F, whole("g"))),
    "JSON": Script(lfm2, f"<|tool_call_start|>[{F}, {G}]<|tool_call_end|>", calls=(CALL_F, CALL_G)),
    "a list": Script(lfm2, "[f(id=42)]", "[f(id=42)]"),
}

QWEN3_CODER_SCRIPTS = {
    "texts and others": Script(
        qwen3_coder,
        "Hi\n<tool_call>\n<function=f>\n<parameter=s>\n42\n</parameter>\n<parameter=n>\n42\n</parameter>\n"
        '<parameter=t>\na "b"\n\n<c>\n</parameter>\n</function>\n</tool_call>',
        "Hi\n",
        (whole("f", r"""{"s": "42", "n": 42, "t": "a \"b\"\n\n<c>"}"""),),
    ),
    "several": Script(
        qwen3_coder,
        "<tool_call>\n<function=f>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>",
        calls=(whole("f"), whole("g")),
    ),
    "no opener": Script(
        qwen3_coder,
        "<function=f>\n<parameter=b>\nTrue\n</parameter>\n<parameter=l>\n[1, {}]\n</parameter>\n"
        "<parameter=u>\nfree text\n</parameter>\n</function>\n</tool_call>",
        calls=(whole("f", '{"b": true, "l": [1, {}], "u": "free text"}'),),
    ),
    "cut in a text": Script(
        qwen3_coder, "<tool_call>\n<function=f>\n<parameter=s>\nab", calls=(open_("f", '{"s": "ab'),)
    ),
    "cut in another": Script(qwen3_coder, "<tool_call>\n<function=f>\n<parameter=n>\n4", calls=(open_("f", '{"n": '),)),
    "no call": Script(qwen3_coder, "<tool_call> and <function=", "<tool_call> and <function="),
    "no end of function": Script(
        qwen3_coder, "<function=f>\n<parameter=n>4</parameter></tool_call>", calls=(whole("f", '{"n": 4}'),)
    ),
}

TAGGED_VALUES = {
    "minimax": Script(
        minimax_m2,
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="id">42</parameter>\n</invoke>\n'
        '<invoke name="g">\n</invoke>\n</minimax:tool_call>',
        calls=(CALL_F, whole("g")),
    ),
    "glm": Script(
        glm45,
        "\n<tool_call>f\n<arg_key>id</arg_key>\n<arg_value>42</arg_value>\n</tool_call>\n<tool_call>g</tool_call>",
        calls=(CALL_F, whole("g")),
    ),
    "glm, two arguments": Script(
        glm45,
        "<tool_call>f<arg_key>a</arg_key><arg_value>x y</arg_value><arg_key>b</arg_key><arg_value>[1]</arg_value>"
        "</tool_call>",
        calls=(whole("f", '{"a": "x y", "b": [1]}'),),
    ),
}

SECTIONS = {
    "kimi": Script(
        kimi_k2,
        'So<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"id": 42}'
        "<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|>",
        "So",
        (CALL_F, whole("g")),
    ),
    "deepseek 3.1": Script(
        deepseek,
        DEEPSEEK.begin
        + DEEPSEEK.call_begin
        + "f"
        + DEEPSEEK.separator
        + '{"id": 42}'
        + DEEPSEEK.call_end
        + DEEPSEEK.end,
        calls=(CALL_F,),
    ),
    "deepseek 3": Script(
        deepseek,
        DEEPSEEK.begin
        + "\n".join(
            f"{DEEPSEEK.call_begin}function{DEEPSEEK.separator}{call}\n```{DEEPSEEK.call_end}"
            for call in ('f\n```json\n{"id": 42}', "g\n```json\n{}")
        )
        + DEEPSEEK.end,
        calls=(CALL_F, whole("g")),
    ),
    "no call": Script(
        kimi_k2, "<|tool_call_begin|>f g<|tool_call_argument", "<|tool_call_begin|>f g<|tool_call_argument"
    ),
}

PYTHONIC = {
    "one": Script(pythonic, "[f(id=42)]", calls=(whole("f", '{"id": 42}'),)),
    "several": Script(
        pythonic,
        '[f(id=42), g(), h.i(x="a, )b", y=[1, (2,)])]',
        calls=(CALL_F, whole("g"), whole("h.i", '{"x": "a, )b", "y": [1, [2]]}')),
    ),
    "Llama 4": Script(pythonic, "<|python_start|>[f(id=42)]<|python_end|>", calls=(CALL_F,)),
    "text around": Script(pythonic, "a <|python_start|>[f(id=42)]<|python_end|>b", "a b", (CALL_F,)),
    "kinds of values": Script(
        pythonic,
        """[f(a=True, b=None, c=-1.5, d={'k': "v"}, e=false)"""
        """, g(f='it\\'s "ü"', g='''x\ny''', h="", i='\\d', j='a\nb',)]""",
        calls=(
            whole("f", '{"a": true, "b": null, "c": -1.5, "d": {"k": "v"}, "e": false}'),
            whole("g", r"""{"f": "it's \"ü\"", "g": "x\ny", "h": "", "i": "\\d", "j": "a\nb"}"""),
        ),
    ),
    "escapes": Script(
        pythonic,
        r"""[f(a="x\ny\\", b='\ud83d\ude00', c=["\ud800", {'\udc00\ud83d\ude00': "\U0001f600\U0000d83d"}])]""",
        calls=(whole("f", '{"a": "x\\ny\\\\", "b": "😀", "c": ["\ufffd", {"\ufffd😀": "😀\ufffd"}]}'),),
    ),
    "a list": Script(pythonic, "[1, 2]", "[1, 2]"),
    "a link": Script(pythonic, "[f](http://x) f(a=1)", "[f](http://x) f(a=1)"),
    "positional": Script(pythonic, "[f(1)]", "[f(1)]"),
    "not a literal": Script(pythonic, "[f(a=1, b=g(2))]", "g(2))]", (open_("f", '{"a": 1'),)),
    "text behind": Script(pythonic, "[f(id=42)] so", " so", (CALL_F,)),
}

CONSTRAINED = {
    "list": Script(
        json_list,
        '[{"name": "f", "parameters": {"id": 42}}, {"name":"g","parameters":{}}]\n',
        calls=(CALL_F, whole("g")),
    ),
    "list cut": Script(
        json_list, '[{"name": "f", "parameters": {"id": 42}}, {"name":"g","param', ' {"name":"g","param', (CALL_F,)
    ),
    "arguments": Script(named, ' {"id": 42}\n ', calls=(CALL_F,)),
    "odd arguments": Script(named, ODD, calls=(whole("f", ODD),)),
    "blanks without end": Script(named, '{"a":"x"' + " " * 300, calls=(open_("f", '{"a":"x"' + " " * 300),)),
    "more than arguments": Script(named, '{"id": 42} and', " and", (CALL_F,)),
    "no arguments": Script(named, "oh", "oh"),
    "nothing": Script(named, ""),
}

HARMONY = {
    "answer": Script(
        harmony,
        "<|channel|>analysis<|message|>Why < not?<|end|><|start|>assistant<|channel|>final<|message|>4 <b>.<|return|>",
        "4 <b>.",
        reasoning="Why < not?",
    ),
    "call": Script(
        harmony,
        "<|channel|>analysis<|message|>So.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
        '<|constrain|>json<|message|>{"id": 42}<|call|>',
        calls=(CALL_F,),
        reasoning="So.",
    ),
    "recipient first": Script(
        harmony,
        '<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{"id": 42}<|call|>'
        " to=functions.g<|channel|>commentary<|message|><|call|>",
        " to=functions.g",
        (CALL_F,),
    ),
    "recipient at the start": Script(
        harmony, ' to=functions.f<|channel|>commentary<|message|>{"id": 42}<|call|>', calls=(CALL_F,)
    ),
    "preamble": Script(
        harmony,
        "<|channel|>commentary<|message|>Plan<|end|>"
        '<|start|>assistant<|channel|>commentary to=functions.f<|constrain|>json<|message|>{"id": 42}<|call|>',
        "Plan",
        (CALL_F,),
    ),
    "built-in tool": Script(
        harmony, "<|channel|>analysis to=python code<|message|>print(1)<|call|>", reasoning="print(1)"
    ),
    "no end": Script(harmony, "<|channel|>analysis<|message|>so", reasoning="so"),
    "call that is cut": Script(
        harmony, '<|channel|>commentary to=functions.f<|message|>{"id": 4', calls=(open_("f", '{"id": 4'),)
    ),
    "header that is cut": Script(harmony, "<|channel|>ana"),
    "a message goes on": Script(harmony, "and so on<|return|>", "and so on"),
    "odd header": Script(
        harmony, "<|channel|>final -- json -<|message|>x<|end|><|start|><|channel|>final<|message|>y", "xy"
    ),
}

SCRIPTS = {
    f"{family}: {name}": script
    for family, scripts in (
        ("hermes", HERMES),
        ("tagged", TAGGED),
        ("lfm2", LFM2),
        ("qwen3 coder", QWEN3_CODER_SCRIPTS),
        ("tagged values", TAGGED_VALUES),
        ("sections", SECTIONS),
        ("llama", LLAMA),
        ("mistral", MISTRAL),
        ("pythonic", PYTHONIC),
        ("constrained", CONSTRAINED),
        ("harmony", HARMONY),
    )
    for name, script in scripts.items()
}
