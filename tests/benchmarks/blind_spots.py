"""What `EmbeddedJudge` does not see: its consistency of true and of false sentences that were written by hand.

python -m tests.benchmarks.blind_spots

Each sentence is one call with the one chunk of its language. One call a cell: an example, no estimate.
"""

# ruff: noqa: RUF001  (other alphabets are meant)

from __future__ import annotations

from typing import Final

import ragtrace

COPIED: Final = "copied"
EXAMPLES: Final = {
    "English": (
        "The library opens at nine o'clock. Returning books late is free of charge. A card is valid for two years."
        " The librarian helps the visitors, and the visitors pay the caretaker.",
        {
            COPIED: "A card is valid for two years.",
            "negated": "Returning books late is not free of charge.",
            "other number": "A card is valid for five years.",
            "roles exchanged": "The visitors help the librarian, and the caretaker pays the visitors.",
            "true, in other words": "Membership lasts 24 months, and nobody is fined for overdue loans.",
        },
    ),
    "German": (
        "Die Bücherei öffnet um neun Uhr. Die verspätete Rückgabe von Büchern ist kostenlos."
        " Ein Ausweis gilt zwei Jahre.",
        {
            COPIED: "Ein Ausweis gilt zwei Jahre.",
            "negated": "Die verspätete Rückgabe von Büchern ist nicht kostenlos.",
            "other number": "Ein Ausweis gilt fünf Jahre.",
            "true, in other words": "Die Mitgliedschaft läuft 24 Monate, und wer zu spät zurückbringt, zahlt nichts.",
        },
    ),
    "Chinese": (
        "图书馆九点开门。逾期归还图书是免费的。借书证的有效期为两年。",
        {
            COPIED: "借书证的有效期为两年。",
            "negated": "逾期归还图书不是免费的。",
            "other number": "借书证的有效期为五年。",
            "true, in other words": "办证后可使用二十四个月，晚还书不用交钱。",
        },
    ),
    "Japanese": (
        "図書館は9時に開館します。本の返却が遅れても無料です。カードの有効期間は2年間です。",
        {
            COPIED: "カードの有効期間は2年間です。",
            "negated": "本の返却が遅れても無料ではありません。",
            "other number": "カードの有効期間は5年間です。",
            "true, in other words": "会員証は24か月使え、延滞してもお金はかかりません。",
        },
    ),
    "Thai": (
        "ห้องสมุดเปิดเวลาเก้าโมง การคืนหนังสือล่าช้าไม่มีค่าใช้จ่าย บัตรมีอายุการใช้งานสองปี",
        {
            COPIED: "บัตรมีอายุการใช้งานสองปี",
            "negated": "การคืนหนังสือล่าช้ามีค่าใช้จ่าย",
            "other number": "บัตรมีอายุการใช้งานห้าปี",
            "true, in other words": "สมาชิกใช้บัตรได้ยี่สิบสี่เดือน และคืนช้าก็ไม่ต้องจ่ายเงิน",
        },
    ),
}  # fmt: skip


def main() -> None:
    """Print a row for each language."""
    kinds = list(EXAMPLES["English"][1])
    print("| language | " + " | ".join(kinds) + " |")
    print("|---|" + "--:|" * len(kinds))
    for language, (chunk, answers) in EXAMPLES.items():
        cells = [consistency(chunk, answers[kind]) if kind in answers else "" for kind in kinds]
        print(f"| {language} | " + " | ".join(cells) + " |")


def consistency(chunk: str, answer: str) -> str:
    """Return the score of *answer* with *chunk* as its only context, or the reason why there is none."""
    result = ragtrace.score(query="?", contexts=[chunk], answer=answer, metrics=["consistency"])["consistency"]
    return f"{result.value:.2f}" if isinstance(result, ragtrace.Score) else result.reason


if __name__ == "__main__":
    main()
