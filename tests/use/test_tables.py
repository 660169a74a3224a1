from drnmf.use.tables import render

HEAD = ["model", "K", "first_loss", "first_gain", "second_loss", "second_gain"]
ROWS = [HEAD, ["short", 2, *["1.25"] * 4], ["a name of some length", 5, None, *["12.50"] * 3]]


def test_a_table_that_fits_is_one():
    assert render([row[:3] for row in ROWS], "text").splitlines() == [
        "model                  K  first_loss",
        "short                  2        1.25",
        "a name of some length  5           -",
    ]


def test_a_wide_table_is_several_each_with_its_keys_and_groups_whole():
    wide = [[*row[:4], *row[4:] * 2] for row in ROWS]
    text = render(wide, "text", keys=2, together=[head.partition("_")[0] for head in wide[0]])
    tables = [block.splitlines() for block in text.split("\n\n")]
    assert [table[0].split() for table in tables] == [[*HEAD[:4]], [*HEAD[:2], *HEAD[4:] * 2]]
    assert [table[2].split()[5:] for table in tables] == [["5", "-", "12.50"], ["5", *["12.50"] * 4]]
    one_by_one = render(wide, "text", keys=2)
    for written in (text, one_by_one):
        assert max(map(len, written.splitlines())) <= 80
    assert len(one_by_one.split("\n\n")) == 2


def test_other_forms_are_never_broken():
    wide = [[*row, *row] for row in ROWS]
    assert len(render(wide, "markdown").splitlines()) == 4
    assert len(render(wide, "csv").splitlines()) == 3
