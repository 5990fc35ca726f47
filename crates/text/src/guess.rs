//! The language of texts, guessed from their letters and commonest words, with the evidence.
//!
//! The script says most. Among the languages of one script, words that only one of them has in every other sentence and
//! letters with marks of their own decide, text by text; texts that say nothing go with the others. Nothing here is
//! learned or exact: the guess is printed and can be overruled.

use std::collections::{BTreeMap, BTreeSet};

use crate::language::Language;
use crate::script::Script;

/// Evidence that is named.
const NAMED: usize = 5;
/// A script that fewer than one text in so many have is not a language of the corpus, except English beside Persian.
const RARE: usize = 20;
/// Another language of the same script that more than one text in so many are in is worth a remark.
const REMARKABLE: usize = 10;

/// What gives a language away: letters, and words.
struct Hints {
    code: &'static str,
    letters: &'static str,
    words: &'static str,
}

const fn hints(code: &'static str, letters: &'static str, words: &'static str) -> Hints {
    Hints { code, letters, words }
}

#[rustfmt::skip]
const LATIN: &[Hints] = &[
    hints("en", "", "the and of to is was that it you he she with his for have this are not but they from"),
    hints("es", "ñ¿¡áéíóú", "el los las una que y por con para del está como pero más su se en lo un"),
    hints("pt", "ãõçáâêóú", "o os as não uma um com para do da em que você são mas no na se ao dos"),
    hints("fr", "éèêàçùœâî", "le les des et une est dans pour pas que qui vous je ce sur avec il elle du au un la"),
    hints("it", "àèìòù", "il di che e è per non una sono con del della gli un la nel ho ma più"),
    hints("de", "äöüß", "der die das und ist nicht ein eine zu den mit sich auf für ich es sie von dem war"),
    hints("nl", "ëĳ", "de het een en van ik dat niet zijn op te met voor is hij er maar aan"),
    hints("sv", "åäö", "och att det en som på är av för med den inte jag han var till ett"),
    hints("da", "æøå", "og det at en er som på af til den ikke jeg han med for de et var"),
    hints("nb", "æøå", "og det at en er som på av til den ikke jeg han med for de et var hun"),
    hints("fi", "äö", "ja on ei se että oli hän mutta kun niin minä ovat ole sen"),
    hints("pl", "ąćęłńśźżó", "i w nie na się z do to że jest jak ale po co tak"),
    hints("cs", "ěščřžýůáíé", "a se na je že v to s z do jsem ale tak jako byl"),
    hints("sk", "ľĺŕôťďňščžýáí", "a sa na je že v to s z do som ale tak ako bol"),
    hints("hu", "őűöüáéíóú", "a az és hogy nem egy is ez meg volt de ha csak"),
    hints("tr", "ğışçöü", "ve bir bu için ile de da çok ne o ama gibi daha"),
    hints("ro", "ășțşţîâ", "și în nu la cu pe este o un de că din să mai"),
    hints("ca", "çàèéíòóú·", "el els les i que de amb per una un és no la del en va"),
    hints("id", "", "yang dan di itu dengan untuk tidak ini dari dalam akan pada ke saya"),
    hints("vi", "ăâđêôơưạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ", "và là của không một có cho người được"),
    hints("eo", "ĉĝĥĵŝŭ", "la kaj estas ne en de li mi por al kiu"),
];

#[rustfmt::skip]
const CYRILLIC: &[Hints] = &[
    hints("ru", "ыэё", "и в не на что я с он это как его но она был по"),
    hints("uk", "іїєґ", "і в не на що я з це та він як до але його була"),
    hints("bg", "ъ", "и на да се не в за от че е с като са по той"),
    hints("sr", "ђјљњћџ", "и је се у да на за са од су није као"),
    hints("mk", "ѓќѕј", "и на да се не во за од е со како што"),
    hints("be", "ўі", "і у на не што я з гэта як ён але"),
    hints("kk", "әғқңөұүһ", "және бұл мен бір үшін деп ол"),
];

#[rustfmt::skip]
const ARABIC: &[Hints] = &[
    hints("fa", "پچژگ", "در به از که را این است با آن برای تا بود من شد هم"),
    hints("ar", "ةأإ", "في من على إلى أن هذا التي ما لا هو مع عن كان"),
    hints("ur", "ٹڈڑےںہھ", "ہے کے میں کی اور سے کو نے ہیں پر کا"),
];

fn candidates(script: Script) -> &'static [Hints] {
    match script {
        Script::Latin => LATIN,
        Script::Cyrillic => CYRILLIC,
        Script::Arabic => ARABIC,
        _ => &[],
    }
}

/// Which languages some texts are in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guess {
    /// Texts that were looked at and have letters.
    pub texts: usize,
    /// The languages and how many of the texts are taken to be in them, the commonest first.
    pub languages: Vec<(Language, usize)>,
    /// Texts that have some of the evidence.
    pub evident: usize,
    /// What speaks for the commonest language: words and letters, the commonest first; a script by its letters.
    pub evidence: Vec<String>,
    /// Languages in the same script that other texts look like.
    pub others: Vec<(Language, usize)>,
}

/// The texts of one script.
#[derive(Default)]
struct Group {
    texts: usize,
    /// Texts that look like a language.
    decided: BTreeMap<&'static str, usize>,
    /// Texts with some hint of a language.
    evident: BTreeMap<&'static str, usize>,
    /// For each language, in how many texts a hint was seen.
    seen: BTreeMap<&'static str, BTreeMap<String, usize>>,
    letters: BTreeMap<char, usize>,
}

impl Guess {
    /// Looks at texts of unknown language.
    pub fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Guess {
        let mut groups: BTreeMap<Script, Group> = BTreeMap::new();
        let mut count = 0;
        for text in texts {
            if let Some(script) = script_of(text) {
                count += 1;
                groups.entry(script).or_default().add(script, text);
            }
        }
        let mut languages: Vec<(Script, &'static str, &Group)> =
            groups.iter().map(|(&script, group)| (script, group.language(script), group)).collect();
        languages.sort_by_key(|(script, _, group)| (std::cmp::Reverse(group.texts), *script));
        let Some(&(_, main, group)) = languages.first() else { return Guess::default() };
        let pair = |code: &str| ["en", "fa"].contains(&code) && ["en", "fa"].contains(&main);
        languages.retain(|(_, code, group)| *code == main || pair(code) || group.texts * RARE >= count);
        let (evident, evidence) = group.evidence(main);
        let others = group.decided.iter().filter(|(code, texts)| **code != main && *texts * REMARKABLE > group.texts);
        Guess {
            texts: count,
            languages: languages.iter().map(|(_, code, group)| (Language::known(code), group.texts)).collect(),
            evident,
            evidence,
            others: others.map(|(code, texts)| (Language::known(code), *texts)).collect(),
        }
    }

    /// Which of these languages a text is in; the first if nothing tells. None only if there are none.
    pub fn among(text: &str, languages: &[Language]) -> Option<Language> {
        let [first, others @ ..] = languages else { return None };
        let script = script_of(text);
        if others.is_empty() || script.is_none() {
            return Some(first.clone());
        }
        let fits = |language: &&Language| {
            let letters = text.chars().filter(|c| Script::of(*c) == script);
            let is_own = |c: char| Script::is_read_in(language.primary(), c);
            // Latin letters are read in all of them, but a text of nothing else is in a language of theirs.
            let latin = script == Some(Script::Latin);
            let usual = language.primary() == "en" || LATIN.iter().any(|hints| hints.code == language.primary());
            letters.take(1).all(is_own) && (!latin || usual)
        };
        let fitting: Vec<&Language> = languages.iter().filter(fits).collect();
        let scores = script.map(|script| scores(script, text)).unwrap_or_default();
        let score = |language: &Language| scores.get(language.primary()).map_or(0, |hints| hints.len());
        let best = fitting.iter().map(|language| score(language)).max()?;
        fitting.into_iter().find(|language| score(language) == best).cloned().or_else(|| Some(first.clone()))
    }
}

impl Group {
    fn add(&mut self, script: Script, text: &str) {
        self.texts += 1;
        let letters: BTreeSet<char> = text.chars().filter(|c| Script::of(*c) == Some(script)).collect();
        letters.into_iter().for_each(|letter| *self.letters.entry(letter).or_default() += 1);
        let scores = scores(script, text);
        let best = scores.values().map(Vec::len).max().unwrap_or(0);
        let mut best_ones = scores.iter().filter(|(_, hints)| hints.len() == best && best > 0);
        if let (Some((code, _)), None) = (best_ones.next(), best_ones.next()) {
            *self.decided.entry(code).or_default() += 1;
        }
        for (code, hints) in scores {
            *self.evident.entry(code).or_default() += 1;
            let of_language = self.seen.entry(code).or_default();
            for hint in hints.into_iter().collect::<BTreeSet<_>>() {
                *of_language.entry(hint).or_default() += 1;
            }
        }
    }

    /// The language that most texts look like, if they are enough; else the usual one of the script.
    fn language(&self, script: Script) -> &'static str {
        let usual = script.usual_language();
        let of_usual = self.decided.get(usual).copied().unwrap_or(0);
        let most = self.decided.iter().max_by_key(|(_, texts)| **texts);
        let enough = |texts: usize| texts > of_usual && texts * RARE >= self.texts && (texts > 1 || self.texts < 10);
        most.filter(|(_, texts)| enough(**texts)).map_or(usual, |(code, _)| code)
    }

    fn evidence(&self, code: &str) -> (usize, Vec<String>) {
        let commonest = |counts: Vec<(String, usize)>| {
            let mut counts = counts;
            counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            counts.into_iter().take(NAMED).map(|(hint, _)| hint).collect()
        };
        match self.seen.get(code) {
            Some(seen) => {
                let hints = seen.iter().map(|(hint, texts)| (hint.clone(), *texts)).collect();
                (self.evident.get(code).copied().unwrap_or(0), commonest(hints))
            }
            // A script that one language has says it by itself; a text in Latin letters says nothing.
            None if code != "en" => {
                let letters = self.letters.iter().map(|(letter, texts)| (letter.to_string(), *texts)).collect();
                (self.texts, commonest(letters))
            }
            None => (0, Vec::new()),
        }
    }
}

/// The script of most letters; Japanese has Chinese characters too.
fn script_of(text: &str) -> Option<Script> {
    let mut counts: BTreeMap<Script, usize> = BTreeMap::new();
    for script in text.chars().filter_map(Script::of) {
        *counts.entry(script).or_default() += 1;
    }
    if counts.contains_key(&Script::Kana) && counts.contains_key(&Script::Han) {
        *counts.entry(Script::Kana).or_default() += counts[&Script::Han];
    }
    let most = counts.values().copied().max()?;
    // English words in a Persian text are more likely than the other way round: the later one when it is even.
    counts.into_iter().rfind(|(_, count)| *count == most).map(|(script, _)| script)
}

/// The hints that a text has for each language of its script.
fn scores(script: Script, text: &str) -> BTreeMap<&'static str, Vec<String>> {
    let lower = text.to_lowercase().replace('ي', "ی").replace('ك', "ک");
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_alphanumeric() && c != '\u{200C}').filter(|word| !word.is_empty()).collect();
    let of = |hints: &Hints| {
        let is_hint = |word: &&&str| hints.words.split(' ').any(|hint| hint == **word);
        let words = words.iter().filter(is_hint).map(|word| (*word).to_owned());
        let letters = lower.chars().filter(|c| hints.letters.contains(*c)).map(|c| c.to_string());
        words.chain(letters).collect::<Vec<_>>()
    };
    let all = candidates(script).iter().map(|hints| (hints.code, of(hints)));
    all.filter(|(_, found)| !found.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guessed(texts: &[&str]) -> Vec<String> {
        Guess::of(texts.iter().copied()).languages.iter().map(|(language, _)| language.to_string()).collect()
    }

    #[test]
    fn languages_are_known_by_ordinary_sentences() {
        for (code, texts) in [
            ("en", ["The old teacher opened the box.", "A café near the river was closed."]),
            ("es", ["El niño comió una manzana.", "¿Qué pasó en la casa de mi abuela?"]),
            ("es", ["Los perros viven con una gata.", "Las calles de la ciudad son largas para los turistas."]),
            ("pt", ["O menino não comeu a maçã.", "Você já viu os barcos no rio?"]),
            ("fr", ["Le garçon est dans la maison.", "Vous avez une très belle voix."]),
            ("it", ["Il ragazzo non è a casa.", "Ho visto una nave nel porto della città."]),
            ("de", ["Der Junge isst einen Apfel.", "Ich weiß nicht, wo die Straße ist."]),
            ("nl", ["De jongen eet een appel.", "Het schip is niet op zijn plaats."]),
            ("sv", ["Pojken är inte hemma.", "Det var en gång en flicka som bodde på landet."]),
            ("fi", ["Poika ei ole kotona.", "Hän oli jo mennyt, mutta se ei haitannut."]),
            ("pl", ["Chłopiec nie jest w domu.", "Co się stało z moim psem?"]),
            ("cs", ["Chlapec není doma, ale přijde.", "To je můj dům a můj pes."]),
            ("hu", ["A fiú nincs itthon.", "Azt hiszem, hogy ez egy szép ház."]),
            ("tr", ["Çocuk evde değil.", "Bu bir elma ve çok güzel."]),
            ("ro", ["Băiatul nu este acasă.", "Am văzut o navă în port și pe mare."]),
            ("vi", ["Cậu bé không có ở nhà.", "Đây là một người bạn của tôi."]),
            ("ru", ["Мальчика нет дома.", "Это был мой старый дом, и он мне нравился."]),
            ("uk", ["Хлопця немає вдома, він у школі.", "Це моя хата, і вона гарна."]),
            ("fa", ["کتاب را از کتابخانه برداشت.", "این خانه در کنار رودخانه است."]),
            ("ar", ["ذهب الولد إلى المدرسة.", "الكتاب على الطاولة في الغرفة."]),
            ("ur", ["لڑکا گھر میں نہیں ہے۔", "یہ کتاب میز پر ہے۔"]),
            ("el", ["Το αγόρι δεν είναι στο σπίτι.", "Πού είναι το πλοίο;"]),
            ("hi", ["लड़का घर पर नहीं है।", "यह मेरी किताब है।"]),
            ("ja", ["男の子は家にいません。", "これは私の本です。"]),
            ("ko", ["소년은 집에 없습니다.", "이것은 제 책입니다."]),
            ("cmn", ["男孩不在家。", "这是我的书。"]),
        ] {
            assert_eq!(guessed(&texts), [code], "{texts:?}");
        }
    }

    #[test]
    fn evidence_is_named_and_nothing_said_is_english() {
        let guess = Guess::of(["El niño comió una manzana.", "¿Qué pasó el lunes?", "Madrid"]);
        assert_eq!((guess.texts, guess.evident), (3, 2));
        assert!(guess.evidence.contains(&"el".to_owned()) && guess.evidence.len() == NAMED, "{guess:?}");
        let nothing = Guess::of(["banana piano", "radio hotel"]);
        assert_eq!((nothing.languages, nothing.evident), (vec![(Language::ENGLISH, 2)], 0));
        assert_eq!(Guess::of(["12 !", ""]), Guess::default());
        let greek = Guess::of(["Το αγόρι"]);
        assert!(greek.evident == 1 && greek.evidence.contains(&"α".to_owned()), "{greek:?}");
    }

    #[test]
    fn a_corpus_of_english_and_persian_has_both_and_a_stray_text_is_none() {
        assert_eq!(guessed(&["the river", "سلام", "a boat and the sea"]), ["en", "fa"]);
        let mut texts = vec!["the river and the sea"; 60];
        texts.push("привет");
        assert_eq!(guessed(&texts), ["en"]);
        texts.push("سلام دنیا");
        assert_eq!(guessed(&texts), ["en", "fa"], "one is enough: each text is read by its letters");
        let mixed = Guess::of(["El niño comió una manzana.", "¿Qué es la vida?", "Los gatos", "The boat is here."]);
        assert_eq!(mixed.languages, [("es".parse().expect("a code"), 4)]);
        assert_eq!(mixed.others, [(Language::ENGLISH, 1)]);
    }

    #[test]
    fn among_languages_the_script_and_the_words_decide() {
        let languages: Vec<Language> = ["en", "es", "fa"].map(|code| code.parse().expect("a code")).into();
        for (text, code) in [("the boat", "en"), ("¿qué?", "es"), ("سلام", "fa"), ("banana", "en"), ("12", "en")]
        {
            assert_eq!(Guess::among(text, &languages).expect("some").code(), code, "{text}");
        }
        assert_eq!(Guess::among("سلام", &languages[..1]), Some(Language::ENGLISH), "there is no other");
        assert_eq!(Guess::among("x", &[]), None);
    }
}
