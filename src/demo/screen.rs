//! The terminal: a table redrawn in place and keys, where standard output is one; else plain lines. Whatever happens,
//! the terminal is left as it was found.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::Stylize;
use crossterm::{cursor, event, execute, queue, style, terminal};
use tokio::sync::mpsc;

use super::table::{Frame, Line, Tone};

/// How long the key reader waits before it looks whether it is still needed.
const KEY_POLL: Duration = Duration::from_millis(100);
/// Keys pressed and not yet acted on.
const KEYS_WAITING: usize = 16;
/// A terminal that does not tell its size.
const USUAL_SIZE: (u16, u16) = (100, 40);

/// What somebody at the terminal wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    /// Cut this region off, or heal it.
    Toggle(usize),
    /// Stop.
    Stop,
}

/// Where the demo is watched.
#[derive(Debug)]
pub(super) enum Screen {
    /// A terminal.
    Live(Live),
    /// A pipe or a file.
    Plain,
}

impl Screen {
    /// Takes the terminal over where there is one.
    pub(super) fn open() -> Self {
        if !io::stdout().is_terminal() {
            return Self::Plain;
        }
        // A terminal that cannot do this (or a process in the background) still takes plain lines.
        Live::open().map_or(Self::Plain, Self::Live)
    }

    /// Whether the table is redrawn in place.
    pub(super) fn is_live(&self) -> bool {
        matches!(self, Self::Live(_))
    }

    /// Shows a moment.
    pub(super) fn show(&mut self, frame: &Frame) -> io::Result<()> {
        match self {
            Self::Live(live) => live.draw(&frame.table()),
            Self::Plain => print(&[frame.plain()]),
        }
    }

    /// The next key. Never returns where there is no keyboard.
    pub(super) async fn key(&mut self) -> Key {
        match self {
            // The reader ends only when the terminal is gone.
            Self::Live(live) => live.keys.recv().await.unwrap_or(Key::Stop),
            Self::Plain => std::future::pending().await,
        }
    }
}

/// Writes lines to standard output. A closed pipe is an error here, not a panic.
pub(super) fn print<L: AsRef<str>>(lines: &[L]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in lines {
        writeln!(out, "{}", line.as_ref())?;
    }
    out.flush()
}

/// A terminal in raw mode, with a thread that reads its keys. Dropping it gives the terminal back.
#[derive(Debug)]
pub(super) struct Live {
    keys: mpsc::Receiver<Key>,
    reader: Option<JoinHandle<()>>,
    done: Arc<AtomicBool>,
    drawn_lines: u16,
}

impl Live {
    fn open() -> io::Result<Self> {
        restore_before_panic_messages();
        terminal::enable_raw_mode()?;
        let done = Arc::new(AtomicBool::new(false));
        let (sender, keys) = mpsc::channel(KEYS_WAITING);
        // From here on Drop restores.
        let mut live = Self { keys, reader: None, done: done.clone(), drawn_lines: 0 };
        execute!(io::stdout(), cursor::Hide)?;
        let reader = std::thread::Builder::new().name("keys".to_owned());
        live.reader = Some(reader.spawn(move || read_keys(&sender, &done))?);
        Ok(live)
    }

    fn draw(&mut self, lines: &[Line]) -> io::Result<()> {
        let (columns, rows) = terminal::size().unwrap_or(USUAL_SIZE);
        let mut out = io::stdout().lock();
        queue!(out, terminal::BeginSynchronizedUpdate, cursor::MoveToColumn(0))?;
        if self.drawn_lines > 0 {
            queue!(out, cursor::MoveUp(self.drawn_lines))?;
        }
        // One row stays free for the cursor; a line that is too long would wrap and spoil the count.
        let fitting = &lines[..lines.len().min(usize::from(rows.saturating_sub(1)))];
        for line in fitting {
            let text: String = line.text.chars().take(usize::from(columns)).collect();
            let text = match line.tone {
                Tone::Normal => text.stylize(),
                Tone::Faint => text.dark_grey(),
                Tone::Warning => text.yellow(),
                Tone::Alarm => text.red().bold(),
            };
            queue!(out, style::PrintStyledContent(text), terminal::Clear(terminal::ClearType::UntilNewLine))?;
            queue!(out, style::Print("\r\n"))?;
        }
        queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown), terminal::EndSynchronizedUpdate)?;
        self.drawn_lines = fitting.len() as u16;
        out.flush()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            // It reads the terminal: it must be gone before the shell does. A panic of it was told already.
            let _told = reader.join();
        }
        restore();
    }
}

/// Gives the terminal back; harmless when it was not taken. Nobody is left to be told if that fails.
fn restore() {
    let _cooked = terminal::disable_raw_mode();
    let _shown = execute!(io::stdout(), terminal::EndSynchronizedUpdate, cursor::Show);
}

/// A message printed in raw mode runs down the screen like a staircase.
fn restore_before_panic_messages() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore();
            usual(info);
        }));
    });
}

fn read_keys(keys: &mpsc::Sender<Key>, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        let key = match event::poll(KEY_POLL) {
            Ok(false) => continue,
            Ok(true) => match event::read() {
                Ok(Event::Key(key)) => meaning(&key),
                Ok(_) => None,
                Err(_) => return,
            },
            Err(_) => return,
        };
        // A full queue means that somebody leans on the keyboard: what they wanted is in it.
        let _queued = key.map(|key| keys.try_send(key));
    }
}

fn meaning(key: &KeyEvent) -> Option<Key> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Stop),
        KeyCode::Char('q' | 'Q') => Some(Key::Stop),
        KeyCode::Char(digit @ '1'..='9') => Some(Key::Toggle(digit as usize - '1' as usize)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let press = |code, modifiers| meaning(&KeyEvent::new(code, modifiers));
        assert_eq!(press(KeyCode::Char('1'), KeyModifiers::NONE), Some(Key::Toggle(0)));
        assert_eq!(press(KeyCode::Char('5'), KeyModifiers::NONE), Some(Key::Toggle(4)));
        assert_eq!(press(KeyCode::Char('q'), KeyModifiers::NONE), Some(Key::Stop));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Stop));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(press(KeyCode::Char('0'), KeyModifiers::NONE), None);
    }
}
