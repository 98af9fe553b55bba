"""The truth is that of the engine, and prompts get the ids that preprocess would give them."""

from load.simulated_truth import MODEL, ids_of_question, prompt_of, true_answer, true_ids, true_text


def test_ids_are_those_of_the_pure_function() -> None:
    """The quick way and the definition (a hash of all ids before) agree, with a logprob for each id."""
    prompt = prompt_of(5)
    wanted: list[int] = []
    while len(wanted) < 60:
        wanted.append(MODEL.next_id(prompt, wanted))
    ids, logprobs = true_answer(prompt, 60)
    assert ids == true_ids(prompt, 60) == wanted
    assert len(logprobs) == 60
    assert true_text(ids).startswith("[simulated] ")


def test_a_question_is_rendered_by_the_template() -> None:
    """What stands between the control tokens is the chat template's text, and a user's text makes none of them."""
    start, end = (MODEL.special[text] for text in ("<|im_start|>", "<|im_end|>"))
    ids = ids_of_question("hi")
    assert (ids[0], ids.count(start), ids.count(end)) == (start, 2, 1)
