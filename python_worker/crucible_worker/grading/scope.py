r"""Whether a text states an answer, or only mentions it: it denies, doubts, asks or supposes it, or calls it wrong.

    I don't think the answer is 12.         denied
    Let me check whether it is 12.          asked
    Suppose the answer is 12.               supposed
    You might think that it is 12.          what others think
    A common wrong answer is 12.            described as wrong
    She has 12 eggs. I do not know more.    declined

Nothing is understood. A mention begins with words of the lists below and reaches to the answer without a comma or the
end of a sentence between them: "I was not sure at first, but the answer is 12" states it, and so do "there is no doubt
that the answer is 12" and "it is not hard to see that it is 12". Work is bounded: one line is read, and at most
`SCOPE_REACH` characters of it.
"""

from __future__ import annotations

import re

from crucible_worker.grading.math.tokens import spelled

__all__ = ["MAX_MENTIONS", "SCOPE_REACH", "declines", "is_asked", "is_hedged", "mention"]

SCOPE_REACH = 160
"""Characters before an answer in which its mention may begin."""
MAX_MENTIONS = 64
"""Markers, or boxes, at the end of a response that may only mention an answer; those before them are not read."""

_APART = (
    r"(?:is|are|was|were|be|but|so|because|since|and|then|however|yet|though|although|while|therefore|thus|hence|why"
    r"|how|what|when|where|who|which)\b"
)
_SUBJECT = rf"(?:\s(?!{_APART})[\w'\u2019-]{{1,20}}){{1,8}}"
_IS = (
    r"(?:\s(?:(?:must|would|should|could|might|may|can|will|has\sto|have\sto|ought\sto)\s)?(?:is|are|was|were|be"
    r"|equals?)\b"
    r"|['\u2019]s\b|[\s*_]{0,3}[=:])"
)
_ADVERBS = (
    r"(?:\s(?:in\sfact|indeed|just|either|equal\sto|about|around|the|an?|number|value|option|choice|letter"
    r"|[a-z]{2,13}ly)"
    r"\b){0,3}"
)
# What may stand between the words before an answer and the answer: marks, a command, the name of an equation.
_GAP = (
    r"[\s\"'\u201c\u2018(*$\\}~_:\[{]{0,8}(?:\\?(?:boxed|fbox|text(?:bf|it|rm)?|math(?:rm|bf))\s?\{\s?){0,2}[$(\\]{0,3}"
    r"(?:[A-Za-z]\w{0,2}\s?=\s?)?[$\\(]{0,3}\Z"
)
_CLAUSE = rf"(?:{_SUBJECT}{_IS}{_ADVERBS})"
_THAT = r"(?:\s(?:that|if|whether))"

# "I do not think that", "this does not mean that". One who "cannot believe" that the answer is 12 says that it is.
_NEGATED = (
    r"(?:(?:do|does|did|would|could|can|ca|should|must|wo)\s?n['\u2019]?t|(?:do|does|did|would|could|can|should|must"
    r"|will)\snot"
    r"|cannot|never|hardly)"
)
_DENIES = (
    r"(?:I|we|you|they|he|she|it|this|that|which|one)\s(?:(?:really|still|just|honestly|personally|certainly|also)\s)?"
    rf"(?!ca(?:n\s?n|n)['\u2019]?o?t\sbelieve){_NEGATED}\s(?:(?:really|actually|necessarily|yet|quite|think"
    rf"|to)\s){{0,2}}"
    r"(?:think|believe|agree|say|claim|conclude|mean|follow|accept|suppose|expect|imagine|seem|appear|imply|guarantee"
    r"|feel"
    r"|assume|prove|know|confirm|verify|establish)(?:\s(?:at\sall|necessarily|for\s(?:sure|certain)|to\sme|like)){0,2}"
    r"|(?:nobody|no\sone|nothing)\s(?:(?:would|will|has|have|could)\s)?(?:ever\s)?(?:thinks?|thought|believe[sd]?|sa(?:ys?|id)"
    r"|claim(?:s|ed)?|agree[sd]?|suggest(?:s|ed)?|indicate[sd]?|implie[sd]|prove[sd]?|show(?:s|ed)?)|never\s(?:said|claimed|thought)"
    r"|not\s(?:saying|claiming|suggesting|asserting)|(?:I|we|they)\s(?:wish|wished|hoped|feared)"
    r"|\A\W{0,6}(?:do\snot|don['\u2019]t|never)\s(?:say|claim|write|answer|conclude)"
    r"|only\s(?:an?\s)?\w{1,12}\swould\s(?:say|think|claim|answer|believe)"
)
_UNTRUE = (
    r"(?:not|[a-z]{2,5}n['\u2019]t)(?:\s(?:necessarily|really|quite|yet|at\sall|entirely)){0,2}\s(?:true|correct"
    r"|right|the\scase|clear"
    r"|certain|likely|possible|plausible|proven|established|known|accurate)"
    r"\s(?:that|if|whether|to\s(?:say|claim|think|conclude|assume)(?:\sthat)?)"
    r"|(?:cannot|can\snot|can['\u2019]t|could\snot|couldn['\u2019]t)\sbe\s(?:(?:true|right|correct|the\scase)\s)?that"
    r"|(?:no|any|little|without)\s(?:\w{1,12}\s)?(?:evidence|proof|indication|guarantee)\sthat"
    r"|(?:it\sis|it['\u2019]s)\snot\sthat|no\sway(?:\sthat|\sis)?|far\sfrom\s(?:true|certain|clear|likely|sure)\sthat"
    r"|(?:little|no|small|slim)\schance(?:\sthat)?|(?:disprove[sd]?|refute[sd]?|rule[sd]?\sout|rumou?red|alleged)\sthat|by\smistake(?:\s(?:I|we))?\s(?:wrote|said|thought|assumed"
    r"|concluded)(?:\sthat)?"
    r"|(?:reject|rejects|deny|denies|dispute|disputes|refute|refutes|disprove|disproves|doubt|contradicts?)\s(?:the|this|that|his"
    r"|her|their"
    r"|your|any)\s\w{1,12}\sthat"
    r"|(?:is|was|be|seems|sounds|it['\u2019]s|that['\u2019]s)\s(?:(?:simply|just|also|very|a\scommon"
    r"|[a-z]{2,13}ly)\s)?(?:false|untrue|wrong"
    r"|incorrect|impossible|unlikely|improbable|doubtful|unclear|uncertain|questionable|tempting|premature|naive"
    r"|(?:an?\s)?(?:mistake|trap|trick|error|myth|misconception|fallacy))"
    r"\s(?:that|if|whether|to\s(?:say|think|claim|conclude|assume|believe|answer|guess)(?:\sthat)?)"
)
_DOUBTS = (
    r"(?:not|[a-z]{2,5}n['\u2019]t|hardly)(?:\s(?:\w{1,12}ly|so|quite|yet|too)){0,2}\s(?:sure|certain|convinced"
    r"|confident|persuaded)"
    rf"{_THAT}?|(?:unsure|uncertain|doubtful|sceptical|skeptical){_THAT}"
    r"|(?:I|we)\s(?:(?:still|also|rather|[a-z]{2,13}ly)\s)?(?:doubt|disagree|deny|dispute|question|refuse\sto\s(?:say"
    r"|believe)"
    r"|have\s(?:(?:some|my|serious|strong|great)\s)?doubts)"
    rf"{_THAT}?"
)
_ASKS = (
    r"whether(?:\sor\snot)?|(?:verify|check|see|test|confirm|determine|know|decide|wonder|wondering|ask|asks|asked|tell"
    r"|say|examine|find\sout|figure\sout|sure|unsure|unclear|matters?)\sif"
)
_OTHERS_THINK = (
    r"(?:you|one|some(?:one|body|\speople|\sstudents|\sreaders)?|many(?:\speople|\sstudents)?|students|people|beginners"
    r"|a\s(?:student|reader|beginner)|we|I)\s(?:"
    r"(?:might|may|could|would)(?:\s(?:at\sfirst|initially|first|well|easily)){0,2}\s(?:(?:be\s(?:tempted|inclined)\sto"
    r"|incorrectly|wrongly|mistakenly|naively|erroneously)\s[a-z]{2,12}|(?<!I\swould\s)(?<!we\swould\s)"
    r"(?:think|guess|expect|assume|believe|suspect|imagine))"
    r"|(?:often|sometimes|usually|commonly|initially)\s(?:say|think|answer|believe|claim|conclude|guess)"
    r"|(?:often\s)?(?:incorrectly|wrongly|mistakenly|naively|erroneously)\s[a-z]{2,12})"
    r"|(?:some|many|most)\s(?:(?:people|students|readers)\s)?(?:(?:might|may|could|would)\s)?(?:answer|say|think"
    r"|claim|believe|argue|assume)"
    r"|you\s(?:think|say|said|claim|claimed)|(?:critics|friends?|classmates?)\s(?:thinks?|says?|argues?|claims?)|(?:tempted|inclined|used)\sto\s(?:say|think|answer|conclude|guess|believe)"
    r"|(?:I|we)\s(?:(?:at\sfirst|first|initially|originally|previously)\s)?(?:thought|believed|expected)"
)
# "Suppose the answer is", but not "suppose x is": a value that is supposed may turn out to be right.
_SUPPOSES = (
    r"(?:(?:suppos(?:e|ing)|assum(?:e|ing)|imagine|pretend|let(?:['\u2019]s|\sus|\sme)\s(?:say|assume|suppose|pretend"
    r"|imagine))"
    r"(?:\s(?:for\s(?:a\smoment|now|contradiction|the\ssake\sof\s(?:argument|contradiction))|instead|now|first"
    r"|further)){0,2}"
    r"(?:\sthat)?\s(?:(?:it|this|that)(?=\s|['\u2019])|@)|(?:even\sif|what\sif|as\sif|unless|(?<!only\s)if)\s@)"
).replace(
    "@",
    r"(?:(?:the|my|our|your|this|that|an?|final|correct|right|actual|true|real|only)\s){0,3}(?:answer|result"
    r"|solution)\b"
    r"(?:\s(?!(?:is|are|was)\b)\w{1,15}){0,5}",
)
_WRONG = (
    r"(?<!of\s)(?<!of\sa\s)(?<!of\sthe\s)(?<!for\sa\s)(?<!for\seach\s)(?<!each\s)(?<!every\s)(?<!per\s)"
    r"(?:wrong|incorrect|erroneous|mistaken|false|naive|na\u00efve|tempting|bogus|(?:least|less)\slikely|unlikely"
    r"|implausible|trap|bad|invalid"
    r"|rejected|discarded|excluded|impossible|fake)"
    r"[)\]]?\s(?:(?:final|first|initial|obvious)\s)?(?:answer|one|guess)s?"
    r"|(?:first|initial|original)\s(?:guess|thought)(?=\s(?:was|is))"
    r"|(?:common|typical|frequent|classic|usual|easy|popular)\s(?:mistake|error|trap|pitfall|misconception|fallacy|myth)s?"
)
_AFTER_WRONG = (
    rf"(?:\s(?!{_APART})[\w'\u2019-]{{1,20}}){{0,8}}?(?:{_IS}{_ADVERBS}|\s(?:gives?|yields?|leads\sto))"
    r"(?:\s(?:to\s(?:say|answer|write|get|give|think|conclude|put|pick|choose)|saying|thinking|believing|assuming|concluding)"
    rf"(?:\sthat)?{_CLAUSE}?|\sthat{_CLAUSE})?"
)
# "I retract the answer 12", and "Hypothetically, the answer is 12".
_RETRACTS = r"(?:retract|withdraw|disavow|take\sback)(?:\s[\w'\u2019]{1,12}){1,4}?(?:\s(?:of|that))?"
_IN_NO_WAY = (
    r"(?:under\sno\scircumstances|in\sno\sway|by\sno\smeans)\s(?:is|are|was|can|could|will|would)"
    rf"(?:{_SUBJECT})(?:\sbe)?"
)
_IN_THE_PAST = (
    r"(?:used|ought)\sto\s(?:be|have\sbeen)|examples?\sof\san?\s(?:wrong|incorrect|bad|false)\s(?:answer|solution)\s?:?"
)
_HYPOTHETICAL = r"hypothetically(?:\sspeaking)?,?"
_HAD_IT_BEEN = rf"had\s(?:the|my|our|this|that|an?)\s(?:\w{{1,12}}\s)?(?:answer|result|solution)\sbeen{_ADVERBS}"
# "None of these is right: 12, 13", "All of these are wrong: 12".
_DENIED_LIST = (
    r"(?:\b(?:none|neither|no\sone)\sof\s[^:.\n]{2,40}\s(?:is|are|was|were)\s(?:\w{1,12}\s)?(?:right|correct|true"
    r"|valid|possible"
    r"|(?:the\s|an?\s)?(?:answer|solution)s?)"
    r"|not\s(?:the|an?|my)\s(?:right\s|correct\s)?(?:answer|solution)s?|distractors?"
    r"|(?:is|are|was|were)\s(?:all\s|both\s)?(?:wrong|incorrect|false|invalid|impossible|not\s(?:right|correct|true"
    r"|valid))"
    r"|\A\W{0,6}(?:(?:answers?|options?|values?|choices?|candidates?)\s)?(?:wrong|incorrect|(?:not|never)\s(?:right|correct|accepted|valid)"
    r"|excluded"
    r"|eliminated|rejected|discarded|ruled\sout))\s?:(?:[^,:\n]{1,30}(?:,|\s(?:and|or|nor)\s)){0,8}"
    r"(?:\s?[^\W\d_]{3,12}(?=\s))?"
)
_NOT_TO_BE = (
    rf"(?:unlikely|improbable|impossible|not\slikely|not\spossible)(?:\sfor{_SUBJECT})?\sto\s(?:be|equal){_ADVERBS}"
)
# The same in other languages, in which the answer may follow the noun directly.
_NOUN = (
    r"(?:\s[^\W\d_]{1,15}['\u2019]?){0,5}\s(?:\w['\u2019])?[^\W\d_]{1,15}"
    r"(?:\s(?:soit|est|sea|es|seja|\u00e9|sia|\u00e8|ist|sei))?"
)
_ABROAD = (
    rf"(?:glaube|denke|meine)\s(?:ich\s)?nicht,?\sdass{_NOUN}|bezweif(?:le|eln),?\sdass{_NOUN}|ob{_NOUN}(?<!\sob)"
    rf"|ne\s(?:pense|crois|penses|croyons|pensons)\spas\sque{_NOUN}|(?:je|nous)\sdout(?:e|ons)\sque{_NOUN}"
    rf"|no\s(?:creo|pienso|parece|creemos)\sque{_NOUN}|dudo\sque{_NOUN}"
    rf"|n\u00e3o\s(?:acho|creio|penso|acredito)\sque{_NOUN}|duvido\sque{_NOUN}"
    rf"|non\s(?:credo|penso)\sche{_NOUN}|dubito\sche{_NOUN}"
    rf"|(?:angenommen,?|nehmen\swir\san,?)(?:\sdass)?{_NOUN}|supposons\sque{_NOUN}|supongamos\sque{_NOUN}"
    rf"|suponha(?:mos)?\sque{_NOUN}|supponiamo\sche{_NOUN}"
    r"|(?:не[ ](?:думаю|считаю|верю|уверен|уверена)|сомневаюсь|предположим),[ ]что(?:[ ]\w{1,15}){1,3}"
    r"|(?:falsche\sAntwort|(?:r\u00e9ponse|respuesta|resposta|risposta)\s(?:fausse|incorrecte|incorrecta|incorreta"
    r"|err\u00f3nea"
    r"|errada|falsa|errata|sbagliata))\s(?:ist|est|es|\u00e9|\u00e8)"
    r"|неправильный[ ]ответ[ ]?(?:\u2014|-|:)?"
)
_EASTERN = (
    r"(?:不(?:认为|認為|相信|觉得|覺得|确定|確定)|怀疑|懷疑|是否|假设|假設|假如|如果|假定)[^\u3002\uff0c,.\d]{0,10}"
    r"(?:答案)?[应應]?[该該]?(?:是|为|為|等于|等於)?"
    r"|(?:错误|錯誤|不正确|不正確)的?(?:答案|选项|選項)(?:是|为|為|[:\uff1a])|(?:間違った|誤った)答えは|(?:틀린|잘못된)\s?답은"
)
_MENTION = re.compile(
    rf"\b(?:(?:{_DENIES}){_THAT}?{_CLAUSE}?|(?:{_UNTRUE}){_CLAUSE}?|(?:{_DOUBTS}){_CLAUSE}?|(?:{_ASKS}){_CLAUSE}?"
    rf"|(?:{_OTHERS_THINK}){_THAT}?{_CLAUSE}?|{_SUPPOSES}{_IS}{_ADVERBS}|(?:{_WRONG}){_AFTER_WRONG}|{_DENIED_LIST}"
    rf"|{_NOT_TO_BE}|{_RETRACTS}{_CLAUSE}?|{_HYPOTHETICAL}{_CLAUSE}|{_HAD_IT_BEEN}|{_IN_NO_WAY}|{_IN_THE_PAST}|{_ABROAD}){_GAP}",
    re.IGNORECASE,
)
_MENTION_IN_EAST = re.compile(rf"(?:{_EASTERN}){_GAP}")
# Every mention has one of these words, or one with "n't": most texts have none.
_SIGNS = spelled(
    "not cannot never hardly nobody none neither doubt disagree deny dispute suppose supposing assume assuming"
    " imagine pretend if unless whether think say said claim claimed believe guess argue thought believed expected"
    " wrong incorrect erroneous mistaken mistake mistakes error errors trap traps pitfall pitfalls misconception"
    " misconceptions fallacy myth false untrue naive na\u00efve tempting tempted inclined bogus likely unlikely"
    " implausible improbable impossible doubtful sceptical skeptical unclear uncertain unsure questionable"
    " premature incorrectly wrongly mistakenly naively erroneously invalid nicht bezweifle bezweifeln ob pas doute"
    " dudo duvido dubito n\u00e3o non angenommen nehmen supposons supongamos suponha suponhamos supponiamo falsche"
    " fausse incorrecte incorrecta incorreta err\u00f3nea errada falsa errata sbagliata \u043d\u0435 сомневаюсь"
    " предположим неправильный thinks says believes agrees agree expect suspect guessed creo pienso parece creemos"
    " way doubts refuse used excluded eliminated rejected discarded ruled doutons far chance"
    " nothing thought evidence proof indication guarantee many most initial original retract withdraw disavow"
    " circumstances means saying claiming suggesting asserting wish wished hoped feared only disproved refuted rules"
    " rule rumored rumoured alleged ought example examples contradict contradicts trick"
    " hypothetically had incorrect) incorrect] wrong) wrong]"
    " reject rejects denies disputes refute refutes disprove disproves bad fake distractor distractors"
)
_AROUND_WORDS = '*(":,'


def mention(text: str, at: int) -> int:
    """Where the clause begins that only mentions what follows at a place of a text; -1 if it is stated there."""
    begin = max(0, at - SCOPE_REACH)
    for stop in ("\n", ". ", "? ", "! "):
        begin = max(begin, text.rfind(stop, begin, at) + 1)
    before = text[begin:at]
    found = None
    words = (
        before.lower().replace("*", " ").replace("(", " ").replace('"', " ").replace(":", " ").replace(",", " ").split()
    )
    if not _SIGNS.isdisjoint(words) or "n't" in before or "n\u2019t" in before:
        found = _MENTION.search(before)
    if found is None and not before.isascii():
        found = _MENTION_IN_EAST.search(before)
    return begin + found.start() if found else -1


# A question: its first word, and its end. "Is it 12? Yes." answers it.
_ENDS_SENTENCE = re.compile(r"[.!?\n](?:\s|\Z)|[\u3002\uff01\uff1f]")
_ENDS_CLAUSE = re.compile(r"[.!?\n:;,](?:\s|\Z)|[\u3002\uff01\uff1f\uff0c]")
_ASKED = re.compile(
    r"[\s*_\"'(>-]{0,6}(?:(?:q|hmm|wait|so|but|and|well|now|then|or|ok)[\s,.:*]{1,4}){0,2}"
    r"(?:is|are|was|were|does|do|did|can|could|would|should|will|has|have|maybe|perhaps|isn['\u2019]t|aren['\u2019]t"
    r"|doesn['\u2019]t|why|how|what|which|who|where|when)\b",
    re.IGNORECASE,
)
_AFFIRMED = re.compile(
    r"[\s*_\"')]{0,6}(?:yes|yeah|yep|correct|right|indeed|exactly|that['\u2019]s\sright)\b", re.IGNORECASE
)
_REFUSED = re.compile(
    r"[\s*_\"')]{0,6}(?:no|nope|wrong|incorrect|not|hardly|I\s(?:do\snot|don['\u2019]t)\s(?:think|believe)\s(?:so|it|that)|that['\u2019]s\s(?:wrong|not))\b(?!\s(?:doubt|problem|question))",
    re.IGNORECASE,
)


def is_asked(text: str, start: int, end: int) -> bool:
    """Whether an answer is in a question that the text does not affirm, or denies. Bounded work."""
    stop = _ENDS_SENTENCE.search(text, end, end + SCOPE_REACH)
    if stop is None or stop[0][0] not in "?\uff1f":
        return False
    if _REFUSED.match(text, stop.end()):
        return True
    begin = max(0, start - SCOPE_REACH)
    clauses = (begin, *(mark.end() for mark in _ENDS_CLAUSE.finditer(text, begin, start)))
    sentence = max((mark.end() for mark in _ENDS_SENTENCE.finditer(text, begin, start)), default=begin)
    asked = stop[0][0] == "\uff1f" or any(_ASKED.match(text, clause) for clause in clauses if clause >= sentence)
    return asked and not _AFFIRMED.match(text, stop.end())


# "Perhaps the answer is 12, but I cannot verify it", "it seems to be 12, but this is a trap".
_HEDGE = re.compile(
    r"\b(?:perhaps|maybe|possibly|seem(?:s|ed)?|appear(?:s|ed)?|looks?\slike|might|may|could|at\sfirst\s(?:glance|sight))\b",
    re.IGNORECASE,
)
_UNDONE = re.compile(
    r"[^.!?\n;]{0,60}[,;:]\s(?:(?:but|however|though|although|yet|and)\s)?(?:(?:I|we)\s(?:(?:really|honestly|just)\s)?(?:have\sno\s"
    r"(?:way|idea|means|proof)\b|(?:am|are)\s(?:not|un)\s?(?:sure|certain|able)\b|(?:can(?:not|\snot|['\u2019]t)|do\snot|don['\u2019]t)"
    r"\s(?:tell|know|verify|confirm|be\s(?:sure|certain)|say|prove|check)\b(?!\s(?:why|how)\b))|(?:this|that|it)\s?(?:is|was|['\u2019]s)"
    r"\s(?:(?:really|just|actually|only)\s)?(?:(?:not|n['\u2019]t)(?=\s?[.!]|\s(?:right|true|correct|so)\b)|an?\s(?:trap|trick|illusion|mistake)"
    r"|misleading|deceptive|false|untrue))",
    re.IGNORECASE,
)


def is_hedged(text: str, at: int) -> bool:
    """Whether the sentence with an answer at a place says that it only seems so, and that its author cannot tell."""
    end = min(len(text), at + SCOPE_REACH)
    if _UNDONE.match(text, at, end) is None:
        return False
    begin = max(0, at - SCOPE_REACH)
    begin = max(begin, *(text.rfind(stop, begin, at) + 1 for stop in ("\n", ". ", "? ", "! ")))
    return _HEDGE.search(text, begin, at) is not None


# "I cannot tell how many", "it cannot be determined": no number before it, and none in its clause, is an answer.
_DECLINES = re.compile(
    r"\b(?:(?:I|we|one)\s(?:(?:really|just|still|simply|honestly)\s)?(?:(?:cannot|can\snot|can['\u2019]t|could\snot"
    r"|couldn['\u2019]t|(?:am|are)\s(?:not\sable|unable)\sto)\s(?:\w{1,12}ly\s)?(?:tell|determine|say|know|answer"
    r"|solve|figure\sout"
    r"|work\sout|compute|calculate|conclude|(?:find|give|provide)\s(?:the|an?|any)\s(?:\w{1,12}\s)?(?:answer|solution"
    r"|value|result"
    r"|number))(?!\s(?:more|any|anything|enough|for\s(?:sure|certain)|with\scertainty))"
    r"|(?:refuse|decline)\sto\s(?:answer|solve|say)|(?:do\snot|don['\u2019]t)\sknow(?!\s(?:if|whether|why|who|that|any\s(?:other|better))\b)|have\sno\sidea"
    r"|give\sup)"
    r"|(?:it|this|that|(?:the|an?|this)\s(?:\w{1,15}\s){1,4})\s?(?:cannot|can['\u2019]t|can\snot"
    r"|could\snot)\sbe\s(?:\w{1,12}ly\s)?"
    r"(?:determined|known|found|computed|calculated|answered|deduced|derived|inferred)"
    r"|(?:not|n['\u2019]t)\s(?:enough|sufficient)\s(?:information|data|details)|insufficient\s(?:information|data)"
    r"|(?:information|data)\s(?:is|are)\s(?:insufficient|missing|lacking|not\s(?:sufficient|enough|given))"
    r"|['\u2019](?:m|re)\s(?:not\sable|unable)\sto\s(?:tell|determine|say|know|answer|solve|compute|calculate)(?!\s(?:more|any))"
    r"|(?:problem|question)\shas\sno\s(?:\w{1,10}\s)?answer"
    r"|(?:no\sway|impossible|unable|not\s(?:able|possible))\sto\s(?:tell|know|determine|say|answer|solve)(?!\s(?:more"
    r"|for\ssure))"
    r"|je\sne\ssais\spas|no\s(?:lo\s)?s\u00e9|ich\swei\u00df\s(?:es\s)?nicht|n\u00e3o\ssei|non\s(?:lo\s)?so"
    r"|не[ ]знаю)\b"
    r"|(?:无法|無法|不能)(?:确定|確定|判断|判斷|知道|回答|得出)|我?不(?:知道|清楚)|(?:わかり|分かり|決定でき)ません|모르겠|알\s수\s없",
    re.IGNORECASE,
)
# Every such text in ASCII has one of these.
_DECLINING = (
    *("know", "cannot", "can't", "can not", "could not", "couldn't", "unable", "not able", "not possible"),
    *("impossible", "enough", "sufficient", "data", "information", "no answer", "has no", "no way", "no idea"),
    *("refuse to", "decline to"),
    *("give up", "ne sais", "no s", "non so", "non lo so", "unsure", "uncertain", "not sure", "n't sure"),
    *("not certain", "n't certain", "not confident"),
)
# "It might be 12, but I am not sure."
_UNSURE = re.compile(
    r"\b(?:might|may|could|perhaps|maybe|possibly)\b[^.!?\n]{1,100}\b(?:but|however|although|though)\b[^.!?\n]{0,40}"
    r"(?:(?:\bnot|n['\u2019]t|\bcannot)\s(?:\w{1,12}\s){0,3}(?:sure|certain|certainty|confident)|\b(?:unsure"
    r"|uncertain))\b",
    re.IGNORECASE,
)
_CONCLUDES = re.compile(
    r"[,;:\u2014\u2013\uff0c\uff1b\uff1a]|\b(?:but|so|maybe|perhaps|probably|guess|think|say|until|unless|without"
    r"|except|that|other|because)\b",
    re.IGNORECASE,
)
_GOES_ON = re.compile(r"\b(?:but|however|though|although|anyway|needed|matters?|nevertheless|still)\b", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
# Words between a refusal and a number that do not make it an answer: "to say it is 18", "; it could be 18".
_ONLY_MENTIONS = re.compile(
    r"\sto\ssay(?:\s(?:that\s)?\w{1,12}){0,4}\s"
    r"|(?:\s(?!but\b|so\b)\w{1,15}){0,5}[.;:,]\s(?:it|this|the\sanswer|there|maybe|perhaps|possibly)(?:\s(?:could|may|might|maybe|perhaps"
    r"|possibly)(?:\s(?:well|even))?\s(?:be|have)?)?\s?(?<!\sit )(?<!\sthis )(?<!answer )(?<!there )"
    r"|(?:\s(?:this|that|it|the|question|problem)){0,3}(?:,\s(?:although|though|even\sthough)|\.\s(?:There\s(?:are|is)))\s",
    re.IGNORECASE,
)
_MAX_DECLINED = 300  # characters at the end of a response in which it may decline


def declines(text: str) -> bool:
    """Whether a text ends with the words that its author has no answer, and gives no number after them."""
    end = text[-_MAX_DECLINED:]
    lowered = end.lower()
    if end.isascii() and not any(map(lowered.__contains__, _DECLINING)):
        return False
    *_, said = (None, *_DECLINES.finditer(end))
    if said is None and ("sure" in lowered or "certain" in lowered or "confident" in lowered):
        said = _UNSURE.search(end)
    if said is None:
        return False
    digit = _DIGIT.search(end, said.end())
    if digit is None:
        return _GOES_ON.search(end, said.end()) is None
    if _ONLY_MENTIONS.fullmatch(end, said.end(), digit.start()):
        return True
    return not any(mark.search(end, said.end(), digit.start()) for mark in (_CONCLUDES, _ENDS_SENTENCE))
