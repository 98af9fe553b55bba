"""The fields that chats and completions have in common: their types, and which values of what is not served pass.

Only types and names are checked here, values in preprocess. An unknown field is refused, never ignored; `null` means
left out everywhere. A field that Headrace does not serve is accepted at the one value that changes nothing.
"""

import json
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

Integer = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
"""What a message can carry."""

Number = Annotated[float, Field(ge=-1e308, le=1e308)]

T = TypeVar("T")

ListOf = Annotated[list[T], Field(fail_fast=True)]
"""A list that is wrong at its first wrong item: a body of some MB may have a million of them."""

LogitBias = Annotated[dict[str, Number], Field(fail_fast=True)]

MAX_MESSAGES = 4096
MAX_PARTS = 4096
MAX_TOOLS = 1024

Tools = Annotated[ListOf[dict[str, Any]], Field(max_length=MAX_TOOLS)]


class Only:
    """Pydantic metadata: the only values that pass are these and null, which ask for nothing."""

    def __init__(self, *values: Any) -> None:
        self._values = values

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._checked)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"enum": [*self._values, None]}

    def _checked(self, value: Any) -> Any:
        if value is None or any(value == each and type(value) is type(each) for each in self._values):
            return value
        accepted = " or ".join(["null", *map(json.dumps, self._values)])
        raise PydanticCustomError("unsupported", "is not served, only {accepted} is accepted", {"accepted": accepted})


class Body(BaseModel):
    """Part of a request's body: typed strictly, without unknown fields."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=(), use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def _one_unknown_of_many(cls, value: Any) -> Any:
        """More fields than there are names: the known ones and the first unknown one say all there is to say."""
        if not isinstance(value, dict):
            return value
        fields = cast("dict[Any, Any]", value)
        if len(fields) <= len(cls.model_fields):
            return fields
        names = {field.alias or name for name, field in cls.model_fields.items()}
        unknown = next(name for name in fields if name not in names)
        return {name: item for name, item in fields.items() if name in names or name is unknown}


class StreamOptions(Body):
    """What a stream says besides the text."""

    include_usage: bool | None = None
    """One more chunk at the end, with the usage."""

    continuous_usage_stats: bool | None = None
    """The usage so far in every chunk (vLLM)."""

    include_obfuscation: Annotated[Any, Only(False)] = None


class JsonSchemaFormat(Body):
    """`response_format.json_schema`."""

    name: str
    description: str | None = None
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    """`response_format`: `text`, `json_object` or `json_schema`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class StructuredOutputs(Body):
    """vLLM's `structured_outputs`: one of these says what the answer has to match."""

    json_schema: dict[str, Any] | str | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: ListOf[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_fallback: Annotated[Any, Only(False)] = None
    disable_any_whitespace: Annotated[Any, Only(False)] = None


class GenerationBody(Body):
    """What chats and completions share."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Integer | None = None
    max_tokens: Integer | None = None
    min_tokens: Integer | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    top_k: Integer | None = None
    min_p: Number | None = None
    seed: Integer | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    repetition_penalty: Number | None = None
    logit_bias: LogitBias | None = None
    stop: str | ListOf[str] | None = None
    stop_token_ids: ListOf[Integer] | None = None
    allowed_token_ids: ListOf[Integer] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    add_special_tokens: bool | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: ListOf[str] | None = None
    guided_grammar: str | None = None
    priority: Integer | None = None
    cache_salt: str | None = None
    user: str | None = None
    return_token_ids: bool | None = None
    """The ids of the answer's tokens beside its text (vLLM)."""

    deadline_s: Number | None = None
    """Headrace's own: the request ends with 504 when it is older than this."""

    # Not served: accepted at the value that changes nothing.
    use_beam_search: Annotated[Any, Only(False)] = None
    length_penalty: Annotated[Any, Only(1, 1.0)] = None
    early_stopping: Annotated[Any, Only(False)] = None
    prompt_logprobs: Annotated[Any, Only()] = None
    logprob_token_ids: Annotated[Any, Only()] = None
    bad_words: Annotated[Any, Only([])] = None
    truncate_prompt_tokens: Annotated[Any, Only()] = None
    spaces_between_special_tokens: Annotated[Any, Only(True)] = None
    return_tokens_as_token_ids: Annotated[Any, Only(False)] = None
    guided_decoding_backend: Annotated[Any, Only()] = None
    repetition_detection: Annotated[Any, Only()] = None
    kv_transfer_params: Annotated[Any, Only()] = None
    vllm_xargs: Annotated[Any, Only()] = None
    guided_whitespace_pattern: Annotated[Any, Only()] = None
