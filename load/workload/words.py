"""English words that prompts are made of. In every vocabulary some are one token, and some are more."""

_TEXT = """
a able about above accept account across act add after again against age ago air all almost along already also always
among amount and animal answer any appear apple area arm around arrive art as ask at autumn away back bag balance bank
barn basin be beam bear became because become bed before began begin behind being bell below bench beside best better
between beyond big bird black blue board boat body book both bottom box boy branch bread break bridge bright bring
broad brook brother build building burn business but buy by call came can canal capital captain care carry case catch
cause centre century certain chain chair chance change channel chapter charge chart child church circle city class
clear clerk climb clock close cloth cloud coal coast cold colour column come common company complete condition contain
control cook copper corn corner cost could count country course court cover cross crowd current curve cut dam dark day
deal deep degree depend depth describe design desk detail differ distance divide do doctor door down draw dream drive
drop dry during each early earth east edge eight either electric empty end engine engineer enough enter equal even
evening ever every example except expect experience eye face fact fall family far farm farmer fast father feel feet
field figure fill find fine finger fire first fish five flat flood floor flow flower follow food foot for force forest
form forward found four free fresh friend from front full garden gate gather gave general get give glass go gold good
grain grass great green ground group grow guard half hall hand happen harbour hard harvest have head hear heart heat
heavy height help here high hill hold hole home horse hour house how hundred hunt ice idea if important in inch inside
instead interest iron island it join journey just keep key kind king kitchen know labour ladder lake lamp land large
last late later law lead leaf learn least leave left length less letter level lie life lift light like line list listen
little load lock long look lose loud low machine main make man many map mark market master matter may meadow mean
measure meet member merchant metal middle might mile mill miller mind minute miss moment money month moon more morning
most mother motion mountain mouth move much music must name narrow nation nature near need neighbour never new next
night nine noise north notice now number object observe ocean of off offer office often oil old on once one only open
orchard order other our out over own page pair paper part pass past path pattern pay peasant people perhaps person
picture piece pipe place plain plan plant play point pond poor port position possible pound power practice prepare
present press pressure price problem produce promise public pull pump purpose push put quarry quarter question quick
quiet quite race rain raise ran rather reach read ready real reason record red region remain remember rest result
return rich ride right ring rise river road rock roof room root rope rough round row rule run sail salt same sand saw
say scale school sea season seat second see seed seem sell send sentence separate serve set seven several shade shadow
shape sharp sheep shelter ship shoe shop shore short should shoulder show side sign silver simple since single sister
sit six size skill sky sleep slope slow sluice small smoke smooth snow so soft soil soldier some song soon sound south
space speak special speed spend spread spring square stage stand star start state station stay steady steam steel steep
step still stone stood stop storm story straight strange stream street strong student study such sudden sugar summer
sun supply suppose sure surface surprise swim system table take talk tall task teach tell temperature ten than that the
their them then there these thick thin thing think third this those though thought thousand three threshold through
thunder time tool top toward tower town track trade train travel tree trouble true trust try tunnel turbine turn twelve
two under unit until up upon use usual valley value various very village voice wait walk wall want warm wash watch
water waterfall wave way weather week weigh weight well west wet what wheel when where whether which while white who
whole why wide wild will wind window winter wire wish with within without wonder wood word work worker world would
write year yellow yesterday yet young
"""

WORDS = tuple(_TEXT.split())
