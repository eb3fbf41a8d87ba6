"""Judges what the suite found, and prints it as a table.

    table.py RUN EXPECTED [DOCUMENT]

RUN holds COLUMN/REVISION/wanted, names of scenarios, and …/server-SCENARIO-TIME/checks.json. EXPECTED says what must
fail, and why. With DOCUMENT the table is written there as well.
"""

import fnmatch
import json
import pathlib
import sys

COLUMNS = ("direct", "through", "bridged")
# From bad to good: a check that is made several times counts as its worst.
ORDER = ("FAILURE", "WARNING", "SKIPPED", "SUCCESS", "INFO")


def found(run):
    """{(revision, scenario): {column: {check: (status, message)}}}, in the order of the suite; none where it broke off."""
    cells = {}
    for column in COLUMNS:
        for wanted in sorted(run.glob(f"{column}/*/wanted")):
            for scenario in wanted.read_text().split():
                checks = read(wanted.parent, scenario)
                cells.setdefault((wanted.parent.name, scenario), {})[column] = checks
    return dict(sorted(cells.items(), key=lambda cell: (cell[0][0], cell[0][1].startswith("tasks-"))))


def read(results, scenario):
    checks = {}
    for path in results.glob(f"server-{scenario}-[0-9][0-9][0-9][0-9]-*/checks.json"):
        for check in json.loads(path.read_text()):
            made = (check["status"], check.get("errorMessage", ""))
            checks[check["id"]] = min(made, checks.get(check["id"], made), key=lambda one: ORDER.index(one[0]))
    return checks


class Expected:
    """Lines `COLUMN REVISION SCENARIO CHECK: REASON`; each may have globs."""

    def __init__(self, text):
        self.lines = []
        for line in text.splitlines():
            if line.strip() and not line.startswith("#"):
                where, reason = line.split(": ", 1)
                self.lines.append((where.split(), reason.strip()))
        self.met = set()

    def reason(self, *where):
        for number, (patterns, reason) in enumerate(self.lines):
            if all(map(fnmatch.fnmatchcase, where, patterns)):
                self.met.add(number)
                return reason
        return None

    def not_met(self, columns):
        """What was listed, and passed; columns that did not run say nothing."""

        def ran(where):
            return any(all(map(fnmatch.fnmatchcase, column, where)) for column in columns)

        lines = (line for number, line in enumerate(self.lines) if number not in self.met)
        return [(where, reason) for where, reason in lines if ran(where)]


def judge(place, column, checks, direct, expected):
    """What is wrong with a column and unexpected, and the reasons of what is expected."""
    wrong, reasons = [] if checks else ["nothing was checked"], []
    for check in sorted(checks.keys() | direct.keys()):
        (got, message), (before, _) = checks.get(check, ("missing", "")), direct.get(check, (None, ""))
        # What is only told is no check, and what directly is no better is nobody's loss.
        if got in ("SUCCESS", "INFO") or before in ("INFO", got):
            continue
        reason = expected.reason(column, *place, check)
        if reason is None:
            wrong.append(f"{check} {got} {message[:300]}".strip())
        elif reason not in reasons:
            reasons.append(reason)
    return wrong, reasons


def cell(checks):
    if checks is None:
        return "–"
    passed = sum(status == "SUCCESS" for status, _ in checks.values())
    bad = sum(status in ("FAILURE", "WARNING") for status, _ in checks.values())
    if bad or not checks:
        return f"{passed} of {passed + bad}"
    return "pass" if passed else "skipped"


def rows(cells, expected):
    for place, columns in cells.items():
        why, wrong = [], []
        direct = columns.get("direct", {})
        for column in COLUMNS:
            if column in columns:
                unexpected, reasons = judge(place, column, columns[column], direct if column != "direct" else {}, expected)
                wrong += [f"{column}: {what}" for what in unexpected]
                why += [reason for reason in reasons if reason not in why]
        yield place, [cell(columns.get(column)) for column in COLUMNS], why, wrong


def main(run, listed, document=None):
    cells = found(pathlib.Path(run))
    expected = Expected(pathlib.Path(listed).read_text())
    table = list(rows(cells, expected))
    columns = {(column, *place) for place, found in cells.items() for column in found}
    failed = 0
    for (revision, scenario), shown, why, wrong in table:
        print(f"{scenario:<46} {revision:<10} " + " ".join(f"{one:<9}" for one in shown), "; ".join(why))
        for what in wrong:
            print(f"  FAIL {what}")
            failed += 1
    for where, reason in expected.not_met(columns):
        print(f"  FAIL {' '.join(where)} passes, but is expected to fail: {reason}")
        failed += 1
    print(f"conformance: {len(table)} scenarios, {failed} unexpected")
    if not table:
        return 1
    if document and not failed:
        write(pathlib.Path(document), table)
    return int(failed > 0)


def write(document, table):
    text = document.read_text()
    head = "| scenario | revision | direct | through | bridged | why |\n|---|---|---|---|---|---|\n"
    lines = ("| " + " | ".join([scenario, revision, *shown, "; ".join(why)]) + " |\n"
             for (revision, scenario), shown, why, _ in table)
    begin, end = "<!-- table -->\n", "<!-- end of the table -->"
    before, rest = text.split(begin)
    document.write_text(before + begin + head + "".join(lines) + end + rest.split(end)[1])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
