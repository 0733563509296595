"""The closed word lists of the embedded judge, all written by hand for it: no corpus and no frequency list is shipped.

`STOP` words carry no content, `GENERIC` words carry little (they frame an answer rather than state a fact), every other
word counts in full. The short function-word lists of other languages serve to recognise a language and to leave its
function words out of account.
"""

# ruff: noqa: RUF001  (other alphabets are meant)

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Not "none": it stands for what is negated ("None of them ..."), and in code it is a value.
NEGATIONS: Final = _words(
    "not no never neither nor cannot without n't don't doesn't didn't isn't aren't wasn't weren't won't wouldn't"
    " can't couldn't shouldn't hasn't haven't hadn't mustn't needn't"
)

DENIALS: Final = NEGATIONS | _words("none unable insufficient unclear lack lacks")
"""A sentence that declines to answer has one of these."""

ENGLISH: Final = NEGATIONS | _words(
    "a an the and or but so yet if then else than that this these those there here it its itself he him his himself"
    " she her hers herself they them their theirs themselves we us our ours ourselves you your yours yourself i me my"
    " mine myself none who whom whose which what when where why how all any both each few more most other others some"
    " such only own same too very can could may might must shall should will would do does did done doing have has had"
    " having be am is are was were been being as at by for from in into of off on onto out over to up down with within"
    " about above across after against along among around before behind below beneath beside between beyond during"
    " except inside like near since through throughout till toward towards under until upon via per also just even"
    " still again ever always often sometimes usually however therefore thus hence moreover furthermore additionally"
    " although though while whereas because unless whether either one ones many much several various every another let"
    " get gets got getting make makes made making s t d ll re ve m it's i'm i'll i've you're you'll you've we're we'll"
    " we've they're they'll they've he's she's that's there's here's what's who's let's i'd you'd we'd"
)

CONTEXT_NOUNS: Final = _words(
    "passage passages context contexts document documents source sources text texts article articles excerpt excerpts"
    " snippet snippets paragraph paragraphs chunk chunks reference references information material materials section"
    " sections knowledge data details answer question documentation"
)
"""What an answer calls the chunks by, when it speaks of them instead of the subject."""

FRAMING: Final = _words(
    "passage passages context contexts information provide provides provided providing given according based use used"
    " uses using include includes including included mention mentions mentioned example examples well due need needs"
    " way ways take help helps important first etc e g eg ie"
)

GENERIC: Final = _words(
    "able access achieve act action add additional affect aim allow answer appear apply appropriate approach article"
    " ask aspect associated available avoid aware become begin beneficial benefit best better bring certain challenge"
    " change choice choose clear close come common commonly compare complete concept conclude conclusion condition"
    " consider consist contain contribute correct create crucial decide depend describe desire detail detailed"
    " determine difference different difficult direct directly discuss document documentation drive easy effect"
    " effective element emphasize enable engage ensure especially essential establish event excerpt exist explain"
    " express fact factor feature find focus follow following form general generally give go good great group high"
    " higher highlight highly idea identify impact improve improvement increase indicate individual instance instead"
    " intend involve issue item keep key kind know known large lead level likely limit little long look low lower main"
    " mainly maintain manage matter mean method multiple nature necessary new next note number occur offer option order"
    " overall particular particularly part people perform plan play point popular possible potential potentially"
    " prefer prepare primarily primary problem process produce promote proper purpose put question range rather reach"
    " really reason receive recommend reduce refer regard regarding relate related relevant rely remain require"
    " resource respective result role run say second see seem select serve set show significant significantly similar"
    " simple simply situation size small snippet source specific specifically specify start state step stop strong"
    " subject suggest suitable sum summary support sure term text thing think third time today together topic try turn"
    " type typical typically ultimately understand unique unit usual valuable value variety vary view want whole word"
    " work yes no okay ok"
)

CLOSINGS: Final = _words(
    "hello hi hey thanks thank welcome sorry please glad happy hope luck sure certainly course absolutely feel free"
    " regards cheers goodbye bye luckily unfortunately apologize apologies apologise assist help helps helpful let know"
    " anything question questions further ask assistance day great good morning afternoon evening else like today more"
    " clarify clarification reach contact don't hesitate answer yes no okay ok idea"
)
"""A sentence whose content words all stand here is courtesy, not a statement."""

NUMBER_WORDS: Final[Mapping[str, str]] = {
    "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
    "ten": "10", "eleven": "11", "twelve": "12", "thirteen": "13", "fourteen": "14", "fifteen": "15",
    "sixteen": "16", "seventeen": "17", "eighteen": "18", "nineteen": "19", "twenty": "20", "thirty": "30",
    "forty": "40", "fifty": "50", "sixty": "60", "seventy": "70", "eighty": "80", "ninety": "90",
}  # fmt: skip

FUNCTION_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "en": ENGLISH - _words("s t d m re ve ll"),
    "es": _words(
        "el los las un una unos unas y o pero que de del al en con por para sin sobre se su sus es son fue era ser está"
        " están hay como más muy no lo le les este esta estos estas ese esa también entre cuando donde desde hasta ha"
    ),
    "fr": _words(
        "le la les un une des du de et ou mais que qui dans en avec pour par sur sans ce cet cette ces est sont était"
        " être il elle ils elles nous vous on ne pas plus au aux se sa son ses leur leurs comme aussi été ont"
    ),
    "de": _words(
        "der die das den dem des ein eine einer eines einem einen und oder aber nicht ist sind war waren wird werden"
        " wurde mit von zu zum zur im am auf aus bei nach für über unter als auch sich es er sie wir ihr dass wie hat"
    ),
    "it": _words(
        "il lo la i gli le un uno una di del della dei delle dal dalla e o ma che chi in nel nella con per su tra fra è"
        " sono era non si suo sua loro questo questa come anche più al alla ai ha hanno stato"
    ),
    "pt": _words(
        "o os as um uma uns umas e ou mas que de do da dos das em no na nos nas com por para sem sobre se seu sua é são"
        " foi era ser não mais muito este esta isso como também entre quando ao à pelo pela há"
    ),
    "nl": _words(
        "de het een en of maar niet is zijn was waren wordt worden werd met van naar te in op uit bij voor over onder"
        " als ook zich hij zij wij dat die dit deze er aan om door heeft hebben"
    ),
    "sv": _words(
        "och att det som en ett är på av för med den till inte har de om var han hon vi men eller från kan ska vid sig"
    ),
    "pl": _words("i w na z do nie się że to jest są był była o jak ale po co od za przez dla oraz lub który która"),
    "tr": _words("ve bir bu da de için ile olarak olan çok daha en gibi ne mi değil var her kadar sonra ancak veya"),
    "ru": _words("и в на не что он она они с по как это к из у за от так же для но или был была были а о его её при"),
}
