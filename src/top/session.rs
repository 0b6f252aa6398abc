//! Joins the terminal, the keys, the signals and the samples.

use super::{
    TopError,
    backend::Screen,
    feed,
    input::{self, Key},
    model::{Model, Query, Request},
    screen,
    terminal::{self, SignalEvent, Signals, Terminal},
};
use crate::{admin_client::AdminClient, clock::Clock};
use rustix::process::{Signal, getpid, kill_process};
use std::{
    io::{self, Read, Stdout},
    thread,
};
use tokio::sync::{mpsc, watch};

/// The screen of a terminal.
type Drawn = ratatui_core::terminal::Terminal<Screen<Stdout>>;

/// Shows the gateway until a key or a signal ends it.
pub(super) async fn run(
    client: AdminClient,
    query: Query,
    has_colours: bool,
) -> Result<(), TopError> {
    // The terminal is taken over only if a gateway is asked that can be asked.
    let mut signals = Signals::listen()?;
    let (ask, queries) = watch::channel(query.clone());
    let (sender, mut messages) = mpsc::channel(4);
    let following = tokio::spawn(feed::follow(client, queries, sender, Clock::start()));
    let terminal = Terminal::take()?;
    let mut pressed = read_keys()?;
    let mut drawn = Drawn::new(Screen::new(io::stdout()))?;
    let mut model = Model::new(query);

    loop {
        drawn.draw(|frame| screen::draw(&model, has_colours, frame.area(), frame.buffer_mut()))?;
        let request = tokio::select! {
            Some(message) = messages.recv() => {
                model.take(message);
                Request::None
            }
            key = pressed.recv() => {
                let page = screen::routes_shown(terminal::size().1);
                // The input may end before the terminal does.
                model.press(key.unwrap_or(Key::End), page)
            }
            signal = signals.next() => match signal {
                SignalEvent::End => Request::Quit,
                SignalEvent::Suspend => Request::Suspend,
                // The next picture has the new size.
                SignalEvent::Resize => Request::None,
            },
        };
        match request {
            Request::None => {}
            Request::Ask => drop(ask.send(model.query.clone())),
            Request::Suspend => suspend(&terminal, &mut drawn)?,
            Request::Quit => break,
        }
    }
    following.abort();
    Ok(())
}

/// Reads keys on a thread of its own, which ends with the process: no read of a terminal can be
/// ended, and none of its settings may change that a shell shares.
fn read_keys() -> io::Result<mpsc::Receiver<Key>> {
    let (sender, receiver) = mpsc::channel(64);
    thread::Builder::new().name("keys".to_owned()).spawn(move || {
        let mut bytes = [0; 1024];
        loop {
            let read = io::stdin().read(&mut bytes).unwrap_or(0);
            if read == 0 {
                return;
            }
            for key in input::read(&bytes[..read]) {
                if sender.blocking_send(key).is_err() {
                    return;
                }
            }
        }
    })?;
    Ok(receiver)
}

/// Stops until the shell continues the program.
fn suspend(terminal: &Terminal, drawn: &mut Drawn) -> io::Result<()> {
    terminal.leave();
    kill_process(getpid(), Signal::STOP)?;
    terminal.enter()?;
    drawn.clear()
}
