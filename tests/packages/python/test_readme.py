"""The page of the package is true: all code on it is run, as it came with the wheel."""

import importlib.metadata
import re

import pytest

PAGE = importlib.metadata.metadata("lockwheel").get_payload()
CODE = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_there_is_code_on_the_page():
    assert len(CODE) >= 10


@pytest.mark.parametrize("code", CODE, ids=range(1, len(CODE) + 1))
def test_its_code_does_what_it_says(code, pytester):
    tests = code.count("\ndef test_")
    if tests == 0:
        exec(compile(code, "README.md", "exec"), {})
    else:
        pytester.makepyfile(code)
        outcomes = pytester.runpytest("-p", "no:cacheprovider", "--strict-markers").parseoutcomes()
        assert outcomes.keys() == {"passed"} and outcomes["passed"] >= tests
