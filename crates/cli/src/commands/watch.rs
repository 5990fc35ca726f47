//! `tandem watch`: runs in a browser, live; and the same beside a run, for `train --web`.

use std::cell::OnceCell;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};

use tandem_observe::{Direction, Side};
use tandem_train::RunRecord;
use tandem_web::{Texts, WatchSettings};

use crate::args::WatchArgs;
use crate::commands::{report, serve};
use crate::failure::Failure;
use crate::interrupt;
use crate::messages::{Lang, Messages};

pub(crate) fn run(args: &WatchArgs, messages: &Messages) -> Result<(), Failure> {
    let token = serve::token(args.listen, args.token.as_deref(), args.no_auth, messages)?;
    if let Some(missing) = args.dirs.iter().find(|dir| !dir.is_dir()) {
        let failure = Failure::usage(messages.with("watch-no-folder", &[("path", &missing.display())]));
        return Err(failure.hint(messages.get("watch-hint-folder")));
    }
    let settings = WatchSettings {
        dirs: args.dirs.clone(),
        listen: args.listen,
        token,
        hosts: args.host.clone(),
        direction: messages.direction(),
    };
    let interrupt = interrupt::catch();
    let listening = |address: SocketAddr| eprintln!("{}", listening(address, messages));
    let watched = tandem_web::watch(settings, Box::new(Catalogs), interrupt.flag.clone(), listening);
    watched.map_err(|error| serve::cannot_listen(args.listen, &error, messages))
}

/// Shows a run while it trains, on a thread of its own that ends with the program.
pub(crate) fn beside(run: &Path, listen: SocketAddr, messages: &Messages) -> Result<(), Failure> {
    if !listen.ip().is_loopback() {
        let failure = Failure::usage(messages.with("serve-open", &[("address", &listen)]));
        return Err(failure.hint(messages.get("watch-hint-beside")));
    }
    let (dirs, hosts) = (vec![run.to_owned()], Vec::new());
    let settings = WatchSettings { dirs, listen, token: None, hosts, direction: messages.direction() };
    let (sender, receiver) = mpsc::channel();
    let started = sender.clone();
    let show = move || {
        let listening = move |address| {
            let _ = started.send(Ok(address));
        };
        let shown = tandem_web::watch(settings, Box::new(Catalogs), Arc::new(AtomicBool::new(false)), listening);
        if let Err(error) = shown {
            let _ = sender.send(Err(error));
        }
    };
    let thread = std::thread::Builder::new().name("web".to_owned()).spawn(show);
    let started = thread.and_then(|_| receiver.recv().unwrap_or_else(|error| Err(std::io::Error::other(error))));
    let address = started.map_err(|error| serve::cannot_listen(listen, &error, messages))?;
    eprintln!("{}", self::listening(address, messages));
    Ok(())
}

fn listening(address: SocketAddr, messages: &Messages) -> String {
    messages.with("watch-listening", &[("url", &format!("http://{address}/"))])
}

/// The texts of both languages, for pages whose readers choose.
struct Catalogs;

thread_local! {
    static ENGLISH: OnceCell<Messages> = const { OnceCell::new() };
    static PERSIAN: OnceCell<Messages> = const { OnceCell::new() };
}

/// A catalog cannot be shared between threads; each that makes pages has its own.
fn with<T>(direction: Direction, work: impl FnOnce(&Messages) -> T) -> T {
    let (catalog, lang) = match direction {
        Direction::LeftToRight => (&ENGLISH, Lang::En),
        Direction::RightToLeft => (&PERSIAN, Lang::Fa),
    };
    catalog.with(|catalog| work(catalog.get_or_init(|| Messages::for_user(Some(lang)))))
}

impl Texts for Catalogs {
    fn text(&self, direction: Direction, id: &str, values: &[(&str, &dyn Display)]) -> String {
        with(direction, |messages| messages.with(id, values))
    }

    fn sentence(&self, direction: Direction, english: &str) -> String {
        with(direction, |messages| messages.text(english.to_owned()))
    }

    fn side(&self, direction: Direction, name: &str, record: &RunRecord) -> Side {
        with(direction, |messages| report::side(name, record, messages))
    }
}
