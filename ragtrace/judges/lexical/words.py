"""Word lists of the embedded judge: function words, negations, units and word endings of several languages.

They are written by hand for it and closed: no corpus and no frequency list is shipped.

Function words (`ENGLISH`) carry no content, `GENERIC` words carry little (they frame an answer rather than state a
fact), every other word counts in full. The short lists of function words of other languages serve to recognise a
language, and to leave its function words out of account.
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

DENIALS: Final = NEGATIONS | _words("none nothing unable insufficient unclear lack lacks")
"""Words of which a sentence that declines to answer has at least one."""

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
    " get gets got getting make makes made making percent pct s t d ll re ve m it's i'm i'll i've"
    " you're you'll you've we're we'll we've"
    " they're they'll they've he's she's that's there's here's what's who's let's i'd you'd we'd"
)

CONTEXT_NOUNS: Final = _words(
    "passage passages context contexts document documents source sources text texts article articles excerpt excerpts"
    " snippet snippets paragraph paragraphs chunk chunks reference references information material materials section"
    " sections knowledge data details answer question documentation"
)
"""Words by which an answer refers to the chunks instead of the subject."""

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
    " clarify clarification reach contact don't hesitate answer yes no okay ok idea refer see consult check"
)
"""Words of courtesies: a sentence with no other content words is not a statement."""

NUMBER_WORDS: Final[Mapping[str, str]] = {
    "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
    "ten": "10", "eleven": "11", "twelve": "12", "thirteen": "13", "fourteen": "14", "fifteen": "15",
    "sixteen": "16", "seventeen": "17", "eighteen": "18", "nineteen": "19", "twenty": "20", "thirty": "30",
    "forty": "40", "fifty": "50", "sixty": "60", "seventy": "70", "eighty": "80", "ninety": "90",
}  # fmt: skip

UNITS: Final[Mapping[str, str]] = {
    "annual": "year", "annually": "year", "yearly": "year", "annum": "year", "monthly": "month", "weekly": "week",
    "daily": "day", "hourly": "hour", "hr": "hour", "hrs": "hour", "min": "minute", "mins": "minute", "sec": "second",
    "secs": "second", "km": "kilometre", "kilometer": "kilometre", "kilometers": "kilometre", "meter": "metre",
    "meters": "metre", "cm": "centimetre", "mm": "millimetre", "kg": "kilogram", "kgs": "kilogram", "liter": "litre",
    "liters": "litre", "gb": "gigabyte", "mb": "megabyte", "kb": "kilobyte", "tb": "terabyte",
}  # fmt: skip
"""Abbreviations, adverbs and other spellings of units, each with the word that is compared instead."""

FUNCTION_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "en": ENGLISH - _words("s t d m re ve ll"),
    "es": _words(
        "el los las un una unos unas y o pero que de del al en con por para sin sobre se su sus es son fue era ser está"
        " están hay como más muy no lo le les este esta estos estas ese esa también entre cuando donde desde hasta ha"
        " la a si cada todo toda todos todas otro otra otros otras cual quien han sido tiene tienen puede pueden debe"
        " deben usted tras durante contra según porque qué cómo mi nos me ciento sólo solo así esto eso ni mismo misma"
    ),
    "fr": _words(
        "le la les un une des du de et ou mais que qui dans en avec pour par sur sans ce cet cette ces est sont était"
        " être il elle ils elles nous vous on ne pas plus au aux se sa son ses leur leurs comme aussi été ont"
        " l d n s c j m t qu à y a si chaque tout toute tous toutes autre autres quand lorsque dont où peut peuvent"
        " doit doivent pouvez devez votre vos notre nos je tu mon ma mes entre pendant contre après avant depuis selon"
        " très cent n'a n'ont c'est l'on d'un d'une qu'il qu'elle s'il même ni"
    ),
    "de": _words(
        "der die das den dem des ein eine einer eines einem einen und oder aber nicht ist sind war waren wird werden"
        " wurde mit von zu zum zur im am auf aus bei nach für über unter als auch sich es er sie wir ihr dass wie hat"
        " in um an ab bis vor gegen durch ohne zwischen seit während wenn weil ob man kann können muss müssen darf"
        " dürfen soll sollen haben hatte wurden worden sein ihre ihren ihrer ihrem ihres seine seinen seiner kein keine"
        " keinen keiner jeder jede jedes jeden jedem jedes alle allen aller dieser diese dieses diesen diesem welche"
        " welcher prozent mehr sehr noch nur schon dann damit etwa beim vom so was wer wo ich mich mir uns ihnen sowie"
    ),
    "it": _words(
        "il lo la i gli le un uno una di del della dei delle dal dalla e o ma che chi in nel nella con per su tra fra è"
        " sono era non si suo sua loro questo questa come anche più al alla ai ha hanno stato"
        " a da l d un' ed se ogni tutto tutta tutti tutte altro altra altri altre può possono deve devono viene vengono"
        " stata stati state degli negli nelle nei agli alle dagli dalle sul sulla sui sulle cui quando dove dopo prima"
        " durante contro presso secondo molto suoi cento nostro nostra mi ci vi lei lui noi voi quale fu dell all nell"
    ),
    "pt": _words(
        "o os as um uma uns umas e ou mas que de do da dos das em no na nos nas com por para sem sobre se seu sua é são"
        " foi era ser não mais muito este esta isso como também entre quando ao à pelo pela há"
        " a aos às cada todo toda todos todas outro outra outros outras pode podem deve devem tem têm ele ela eles elas"
        " você seus suas num numa após durante contra até desde onde quem cento foram está estão já nem lhe nosso nossa"
    ),
    "nl": _words(
        "de het een en of maar niet is zijn was waren wordt worden werd met van naar te in op uit bij voor over onder"
        " als ook zich hij zij wij dat die dit deze er aan om door heeft hebben"
        " procent na tegen tussen tijdens zonder per kan kunnen moet moeten mag mogen u uw ze we je hun haar mijn ons"
        " onze elk elke alle alles ieder iedere geen andere wanneer wie wat waar dan nog al meer zeer werden hoeft"
        " hoeven"
    ),
    "sv": _words(
        "och att det som en ett är på av för med den till inte har de om var han hon vi men eller från kan ska vid sig"
    ),
    "pl": _words("i w na z do nie się że to jest są był była o jak ale po co od za przez dla oraz lub który która"),
    "tr": _words("ve bir bu da de için ile olarak olan çok daha en gibi ne mi değil var her kadar sonra ancak veya"),
    "ru": _words(
        "и в на не что он она они с по как это к из у за от так же для но или был была были а о его её при"
        " до со во ко об без под над между через после перед если когда где кто который которая которое которые тот та"
        " то те этот эта эти этого вы мы я вас нас их ему ей им ли бы быть было есть может могут можно можете нужно"
        " должен должна должны все всех всё весь вся каждый каждая каждое каждого каждую каждой также только уже ещё ни"
        " около процент процента процентов свой своя свои ваш ваша ваши другой другие другом других чем"
    ),
    "ar": _words(
        "في من إلى على عن مع أن إن أو ثم لا لم لن ما هذا هذه ذلك تلك هو هي هم كان كانت يكون تكون قد كل بعد قبل بين عند"
        " عندما حتى إذا التي الذي الذين و ف ب ل ك بدون دون غير أي كما لكن له لها لهم منه منها فيه فيها عليه عليها يمكن"
        " يجب تستطيع يستطيع حوالي خلال وهو وهي ولا ليس ليست هناك نحن أنت بل أيضا فقط جميع بعض بالمئة"
    ),
    "hi": _words(
        "है हैं था थी थे का की के को में से पर और या यह वह ये वे एक जो कि तो भी ही ने तक लिए साथ बाद हर सभी कर करके करना"
        " करने किया की गया गई गए जा जाता जाती जाते सकता सकती सकते चाहिए होता होती होते हो होना होगा रहता अगर जब तब लेकिन"
        " बिना द्वारा कुछ कोई इस उस इसे उसे इसका उसका आप आपको आपका वाला वाले वाली नहीं न बीच दौरान भीतर अपने अपना प्रतिशत"
    ),
}
"""Words without content, by language: articles, prepositions, pronouns, conjunctions, auxiliary and modal verbs."""

OTHER_FUNCTION_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "sv": _words(
        "och att det som en ett är på av för med den till inte har de om var han hon vi men eller från kan ska vid sig"
        " jag ingen inget inga denna detta finns dokumenten hittade tyvärr kunde vet när där då år"
    ),
    "da": _words(
        "og at det som en et er på af for med den til ikke har de om var han hun vi men eller fra kan skal ved sig jeg"
        " ingen intet denne dette findes dokumenterne fandt desværre kunne ved når der da år efter kun"
    ),
    "no": _words(
        "og at det som en et er på av for med den til ikke har de om var han hun vi men eller fra kan skal ved seg jeg"
        " ingen ikkje denne dette finnes dokumentene fant dessverre kunne vet når der da år etter bare"
    ),
    "is": _words("og að er ekki það sem til um við með fyrir en var eru hann hún ég frá hefur því þess ár eða"),
    "af": _words(
        "die is in en het nie van vir was op as by hierdie wat sy ons dit ek word kan moet oor deur daar jou met na om"
    ),
    "fi": _words(
        "ja on ei että se en ole oli mutta tai kun niin joka mitä tämä tästä näin sekä myös hän ovat olen tiedä löydy"
        " löytynyt valitettavasti pahoillani asiakirjoissa vuotta kaksi voi kuin jos sen asiasta tietoa"
    ),
    "et": _words(
        "ja on ei et see ma ka oma kui või aga mis seda oli ole tea kahjuks leidnud dokumentidest aastat kaks"
    ),
    "hu": _words(
        "az és nem hogy egy is ez meg csak de van volt vagy mint már még ki ha azt ezt el én sajnos tudom találtam"
        " dokumentumokban információt évig két erre erről nincs szerint kell lehet után"
    ),
    "pl": _words(
        "nie się że to jest są był była jak ale po co od za przez dla oraz lub który która które na do ze te ten tej"
        " tym tego wiem niestety znalazłem żadnych informacji dokumentach kto gdzie czy lata można ma jego ich bez"
    ),
    "cs": _words(
        "je na se že to ve by ale jako za do od po pro není jsou byl byla který která které nebo si jsem aby tak při"
        " bohužel nevím nenašel informace dokumentech tom této roky ze"
    ),
    "sk": _words(
        "je na sa že to vo by ale ako za do od po pre nie sú bol bola ktorý ktorá ktoré alebo si som aby tak pri"
        " bohužiaľ neviem nenašiel informácie dokumentoch tom tejto roky zo žiaľ"
    ),
    "hr": _words(
        "je na se da su ne od za što sa koji koja koje ili nije to kao iz po bi ali do nisam sam nažalost žao ovom"
        " dokumentima informacije dvije godine biti samo može"
    ),
    "sl": _words(
        "je na se da so ne od za ki pri ali ni to kot iz po bi do nisem sem žal tem dokumentih informacij dve leti biti"
        " samo lahko za ter"
    ),
    "ro": _words(
        "și de la cu nu un pe din că este se sau pentru mai care sunt fost au prin ca al ale într am acest această"
        " despre îmi pare rău documentele informații ani doi după dar știu nici"
    ),
    "ca": _words(
        "el la els les de del dels que en amb per no un una és són aquest aquesta però com més al als ha han hi ho es"
        " des sobre cap dos anys ho sento trobat documents informació data compra fins també"
    ),
    "gl": _words(
        "os as un unha de do da dos das que en no na con por para non se é son máis como este esta pero ao dende"
        " sobre dous anos sinto atopei documentos información tamén foi"
    ),
    "lt": _words("ir yra ne kad su iš kaip tai bet už nuo iki buvo kuris kuri jis ji arba apie deja nežinau metai"),
    "lv": _words("un ir ne ka ar no kā tas bet par līdz bija kas viņš vai diemžēl nezinu gadi"),
    "sq": _words("dhe të në një për me nga që është nuk ka se do jam si por kjo ky më"),
    "eu": _words("eta da ez du dira bat ere izan den baina edo dute zuen honetan bi ditu"),
    "cy": _words("yn ac ar mae nid ddim ei eu wedi fod gan am oedd hyn sydd bydd neu nad"),
    "ga": _words("agus an na tá ar ag go is ní le do bhí den sa ach nach mé sé seo sin"),
    "tr": _words(
        "ve bir bu da de için ile olarak olan çok daha en gibi ne mi değil var her kadar sonra ancak veya yok"
        " bilmiyorum maalesef bulamadım bilgi belgelerde iki konuda üzgünüm hakkında"
    ),
    "az": _words("və bir bu da də üçün ilə olan çox daha ən deyil var amma sonra yoxdur bilmirəm təəssüf məlumat"),
    "vi": _words("và là của có không cho với được trong một những này các khi đã từ tôi thì về tin"),
    "id": _words(
        "dan yang di ke dari untuk dengan ini itu tidak adalah pada dalam akan oleh atau juga ada saya maaf kami bisa"
        " dapat tahun dua tentang dokumen informasi menemukan sebagai karena"
    ),
    "tl": _words("ang ng sa na mga ay at hindi ko ito para kung may mula ni si ako wala po dahil"),
    "sw": _words(
        "na ya wa kwa ni la katika za hii hiyo si sio kuwa yake haya hakuna samahani sijui cha vya miaka miwili"
    ),
    "uk": _words(
        "та не на що це від до як для про але за або по під зі був була було мене тому також цю цього ці роки"
        " жаль знайшов документах знаю"
    ),
    "be": _words("не на што гэта ад да як для пра але за або па быў была яго таксама гэтага"),
    "bg": _words(
        "на за от не се да са като но или по при до че това със който която което съм беше след към две години"
        " съжалявам намерих информация документите тази относно"
    ),
    "sr": _words("је на се да су не од за што са који која које или није то као из по би али до нисам сам у"),
    "mk": _words("на се да не од за што со кој која кое или како но до по при ова беше тоа од се"),
    "fa": _words("و در به از که این را با است برای آن هم تا بر یا نیست ندارد من دو"),
    "ur": _words("کے میں کی ہے سے کو کا اور نہیں یہ پر ہیں کہ نے ایک"),
    "mr": _words("आहे आणि या ते हे तो ती नाही मध्ये साठी पासून आहेत होते मला कोणतीही करा येते वर्षे दोन"),
    "ne": _words("छ र मा को लाई हो छन् भएको यो गर्न छैन बाट पनि गरेको यस माफ वर्ष दुई"),
}
"""Frequent words of some languages in which declining is not recognised, to tell these languages from those above.

Words that languages share are in the list of each. No list has to be complete, and not every language needs one: a text
without function words of the languages above is in another language anyway.
"""

CHINESE_FUNCTION: Final = frozenset(
    "的了是在和与或把被从到于以可您你我他她它们这那之其个每不没有无也都就而及由对为要会能将则着过得地让给向跟等各该某"
    "很更最又还再已如若当后前时候里中上下内外人年月日次家只位条件份种"
)
"""Chinese characters that carry little content; a pair of characters with one of these weighs `GENERIC_WEIGHT`."""

INFLECTION: Final[Mapping[str, tuple[str, ...]]] = {
    "de": tuple("ungen ung lichen licher liches liche lich ern em en er es et st e n s t".split()),
    "nl": tuple("elijkse elijke elijk ingen ing en e s t".split()),
    **dict.fromkeys(("fr", "es", "pt", "it"), tuple("es as os is e a o i s".split())),
    "ru": tuple(
        "иями ями ами ией иям ием иях ого его ому ему ыми ими ать ять ить еть ают яют ует уют ешь ов ев еи ои ии ыи ая"
        " яя ое ее ые ие ам ям ах ях ом ем ую юю ия ию ья ет ит ют ут ат ят ть а я о е ы и у ю ь".split()
    ),
}
"""Inflectional endings of normalized words, by language: the first that fits is removed."""
ARABIC_PREFIXES: Final = tuple("وال بال كال فال لل ال".split())
ARABIC_ENDINGS: Final = tuple("ها ات ون ين ان يه ية ه ة ي ا".split())
