//! What the user reads, in English and Persian, from one catalog each (`messages/*.ftl`, Fluent).
//!
//! Numbers, flags, paths and commands stay Latin in both. Persian lines isolate them from the right-to-left text.

use std::ffi::OsString;

use clap::ValueEnum;
use fluent_bundle::{FluentArgs, FluentBundle, FluentResource, FluentValue};
use tandem_observe::Direction;

use crate::texts;

/// The languages there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Lang {
    /// English
    En,
    /// فارسی
    Fa,
}

impl Lang {
    fn source(self) -> &'static str {
        match self {
            Lang::En => include_str!("../messages/en.ftl"),
            Lang::Fa => include_str!("../messages/fa.ftl"),
        }
    }

    /// What was typed, before anything else is understood.
    pub(crate) fn typed(arguments: &[OsString]) -> Option<Lang> {
        let mut words = arguments.iter().filter_map(|word| word.to_str());
        let value = words.find_map(|word| (word == "--lang").then_some("").or(word.strip_prefix("--lang=")))?;
        Lang::from_str(if value.is_empty() { words.next()? } else { value }, false).ok()
    }

    /// From `LC_ALL`, `LC_MESSAGES` or `LANG`, the first that is set, as every other program does it.
    fn from_environment() -> Lang {
        let locale = (["LC_ALL", "LC_MESSAGES", "LANG"].iter())
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
            .unwrap_or_default();
        if locale.starts_with("fa") { Lang::Fa } else { Lang::En }
    }
}

/// The catalog of one language.
pub(crate) struct Messages(FluentBundle<FluentResource>, Lang);

impl Messages {
    /// In the language asked for, else in that of the locale.
    pub(crate) fn for_user(asked: Option<Lang>) -> Messages {
        Messages::new(asked.unwrap_or_else(Lang::from_environment))
    }

    fn new(lang: Lang) -> Messages {
        let resource = FluentResource::try_new(lang.source().to_owned())
            .unwrap_or_else(|(_, errors)| panic!("the built-in catalogue is valid: {errors:?}"));
        let id = if lang == Lang::Fa { "fa" } else { "en" };
        let mut bundle = FluentBundle::new(vec![id.parse().expect("a language tag")]);
        // What needs it is isolated below: a number between promised words would cut them.
        bundle.set_use_isolating(false);
        bundle.add_resource(resource).expect("no message is defined twice");
        Messages(bundle, lang)
    }

    /// The way in which a page is read.
    pub(crate) fn direction(&self) -> Direction {
        match self.1 {
            Lang::En => Direction::LeftToRight,
            Lang::Fa => Direction::RightToLeft,
        }
    }

    pub(crate) fn lang(&self) -> Lang {
        self.1
    }

    /// A text whose English is in the code, such as an error of a library.
    pub(crate) fn text(&self, english: String) -> String {
        match self.1 {
            Lang::En => english,
            Lang::Fa => texts::persian(&english),
        }
    }

    /// A text that keeps its own direction within a line of the language.
    pub(crate) fn isolated(&self, text: &str) -> String {
        match self.1 {
            Lang::En => text.to_owned(),
            Lang::Fa => format!("{}{text}{}", texts::ISOLATE.0, texts::ISOLATE.1),
        }
    }

    /// A text of the help.
    pub(crate) fn help(&self, english: &str) -> String {
        match self.1 {
            Lang::En => english.to_owned(),
            Lang::Fa => texts::help(english),
        }
    }

    /// Several things in one line, with the comma of the language between them.
    pub(crate) fn list(&self, things: &[String]) -> String {
        things.join(if self.1 == Lang::Fa { "، " } else { ", " })
    }

    /// A message without arguments.
    pub(crate) fn get(&self, id: &str) -> String {
        self.with(id, &[])
    }

    /// A message with its arguments. Numbers are formatted by the caller, so that both languages show the same.
    pub(crate) fn with(&self, id: &str, values: &[(&str, &dyn std::fmt::Display)]) -> String {
        let mut args = FluentArgs::new();
        for (name, value) in values {
            let value = value.to_string();
            // One word is a name; only a sentence can be an error of a library.
            let value = if value.contains(' ') { self.text(value) } else { value };
            let is_number = value.chars().all(|c| c.is_ascii_digit() || c == '.');
            args.set(*name, FluentValue::from(if is_number { value } else { self.isolated(&value) }));
        }
        let message = self.0.get_message(id).and_then(|message| message.value());
        let pattern = message.unwrap_or_else(|| panic!("message `{id}` is in the catalogue"));
        let mut errors = Vec::new();
        let text = self.0.format_pattern(pattern, Some(&args), &mut errors).into_owned();
        debug_assert!(errors.is_empty(), "{id}: {errors:?}");
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use tandem_flow::{Lane, Stage};
    use tandem_observe::{Bottleneck, Surface, shown_on};

    use super::*;

    /// Message id → the variables it uses.
    fn entries(lang: Lang) -> BTreeMap<String, BTreeSet<String>> {
        let mut entries: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut current = String::new();
        for line in lang.source().lines().filter(|line| !line.starts_with('#')) {
            if let Some((id, _)) = line.split_once(" =").filter(|_| !line.starts_with(' ')) {
                current = id.to_owned();
                entries.entry(current.clone()).or_default();
            }
            for part in line.split('$').skip(1) {
                let name: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                entries.entry(current.clone()).or_default().insert(name);
            }
        }
        entries
    }

    #[test]
    fn every_message_exists_in_both_languages_with_the_same_variables() {
        let english = entries(Lang::En);
        assert!(english.len() > 20);
        assert_eq!(english, entries(Lang::Fa));
    }

    #[test]
    fn a_stage_has_one_name_wherever_it_is_shown() {
        for lang in [Lang::En, Lang::Fa] {
            let messages = Messages::new(lang);
            for stage in Stage::TIMED {
                assert!(!messages.get(&format!("stage-{stage}")).is_empty());
            }
            for limit in Bottleneck::ALL {
                assert!(!messages.get(&format!("stage-{limit}")).is_empty());
            }
            let twice = entries(lang).into_keys().filter(|id| id.ends_with("-preprocess")).count();
            assert_eq!(twice, 1, "written once");
        }
    }

    #[test]
    fn every_metric_that_people_see_has_a_name_and_no_name_is_left_over() {
        let seen = [Surface::Dashboard, Surface::Details, Surface::Report].into_iter().flat_map(shown_on);
        let in_line = shown_on(Surface::Line).into_iter().map(|metric| format!("line-{}", metric.name));
        let wanted: BTreeSet<String> = seen.map(|metric| format!("metric-{}", metric.name)).chain(in_line).collect();
        let lanes = [Lane::Data, Lane::Model].map(|lane| format!("-{}", lane.name()));
        for lang in [Lang::En, Lang::Fa] {
            let ids = entries(lang).into_keys().filter(|id| id.starts_with("metric-") || id.starts_with("line-"));
            // A lane is part of the name; the terms of the loss have names of their own.
            let metrics =
                ids.map(|id| lanes.iter().find_map(|lane| id.strip_suffix(lane.as_str())).unwrap_or(&id).to_owned());
            let there: BTreeSet<String> = metrics.chain(["metric-loss_term".to_owned()]).collect();
            assert_eq!(there, wanted);
        }
    }

    #[test]
    fn persian_messages_are_persian_and_keep_numbers_latin() {
        let text = Messages::new(Lang::Fa).with("sim-starved", &[("share", &"12.5")]);
        assert!(text.chars().any(|c| ('\u{0600}'..='\u{06FF}').contains(&c)), "{text}");
        assert!(text.contains("12.5"), "{text}");
    }
}
