//! Files of the pages, in the program itself: no other host is ever asked for anything.

use hyper::header::{CACHE_CONTROL, HeaderValue};

use crate::http::{Response, respond};

/// A file of a page.
#[derive(Debug)]
pub(crate) struct Asset {
    pub(crate) path: &'static str,
    content_type: &'static str,
    text: &'static str,
}

/// The file at a path, if it is one.
pub(crate) fn find(assets: &'static [Asset], path: &str) -> Option<Response> {
    let asset = assets.iter().find(|asset| asset.path == path)?;
    let mut response = respond(200, asset.content_type, asset.text);
    // Another version of the program has other files; they are small.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Some(response)
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// The page of `tandem serve`.
pub(crate) static SERVE: &[Asset] = &[
    Asset { path: "/", content_type: HTML, text: include_str!("../assets/speak.html") },
    Asset { path: "/speak.js", content_type: SCRIPT, text: include_str!("../assets/speak.js") },
    Asset { path: "/texts.js", content_type: SCRIPT, text: include_str!("../assets/texts.js") },
    Asset { path: "/speak.css", content_type: STYLE, text: include_str!("../assets/speak.css") },
    Asset { path: "/colors.css", content_type: STYLE, text: tandem_observe::STYLE },
];

/// The files of `tandem watch`; its pages are made.
pub(crate) static WATCH: &[Asset] = &[
    Asset { path: "/watch.js", content_type: SCRIPT, text: include_str!("../assets/watch.js") },
    Asset { path: "/watch.css", content_type: STYLE, text: include_str!("../assets/watch.css") },
    Asset { path: "/report.css", content_type: STYLE, text: tandem_observe::STYLE },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_ask_nobody_else_and_have_no_script_or_style_of_their_own() {
        for asset in SERVE.iter().chain(WATCH) {
            let text = asset.text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("http://") && !text.contains("https://"), "{}", asset.path);
            if asset.content_type == HTML {
                assert!(
                    !text.contains("<style") && !text.contains(" style=") && !text.contains("<script>"),
                    "{}",
                    asset.path
                );
                assert!(!text.contains(" onclick="), "{}", asset.path);
            }
        }
    }

    #[test]
    fn both_languages_have_the_same_texts() {
        let text = SERVE.iter().find(|asset| asset.path == "/texts.js").expect("there").text;
        let keys = |lang: &str| -> Vec<&str> {
            let part = text
                .split(&format!("\n  {lang}: {{\n"))
                .nth(1)
                .and_then(|rest| rest.split("\n  },").next())
                .expect(lang);
            part.lines().filter_map(|line| line.trim().split_once(": ").map(|(key, _)| key)).collect()
        };
        assert!(keys("en").len() > 20);
        assert_eq!(keys("en"), keys("fa"));
    }
}
