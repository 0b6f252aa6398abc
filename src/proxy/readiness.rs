//! Whether a socket may have something to read.

use core::{
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    task::{Context, Poll, Waker},
};
use std::{io, sync::Arc, task::Wake};
use tokio::io::{AsyncRead, ReadBuf};

/// Knows whether a stream may have become readable since it was found not to be.
///
/// hyper asks for more to read whenever the task of a connection is polled, up to three
/// times, and whoever woke it. A stream that has nothing wakes the task through this, and
/// is not asked again before it has.
#[derive(Debug, Default)]
pub(super) struct Readiness(Option<Reader>);

/// The task that reads.
#[derive(Debug)]
struct Reader {
    bell: Arc<Bell>,
    /// Rings the bell.
    waker: Waker,
}

#[derive(Debug)]
struct Bell {
    task: Waker,
    has_rung: AtomicBool,
}

impl Readiness {
    /// Polls `stream`, unless it is known to have nothing to read.
    #[inline]
    pub(super) fn poll_read<T: AsyncRead + Unpin>(
        &mut self,
        stream: &mut T,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Reader { bell, waker } = match &mut self.0 {
            Some(reader) if reader.bell.task.will_wake(context.waker()) => reader,
            // After an upgrade it is another task.
            other => other.insert(Reader::new(context.waker())),
        };
        if !bell.has_rung.load(Relaxed) {
            return Poll::Pending;
        }
        // Before, as it may ring meanwhile.
        bell.has_rung.store(false, Relaxed);
        let polled = Pin::new(stream).poll_read(&mut Context::from_waker(waker), buffer);
        if polled.is_ready() {
            bell.has_rung.store(true, Relaxed);
        }
        polled
    }
}

impl Reader {
    fn new(task: &Waker) -> Self {
        let bell = Arc::new(Bell { task: task.clone(), has_rung: AtomicBool::new(true) });
        Self { waker: Waker::from(Arc::clone(&bell)), bell }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_rung.store(true, Relaxed);
        self.task.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::tests::Woken;

    /// Has nothing to read at first, and counts how often it is asked.
    #[derive(Default)]
    struct Silent {
        asked: u32,
        has_more: bool,
        reader: Option<Waker>,
    }

    impl AsyncRead for Silent {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.asked += 1;
            if self.has_more {
                buffer.put_slice(b"a");
                return Poll::Ready(Ok(()));
            }
            self.reader = Some(context.waker().clone());
            Poll::Pending
        }
    }

    #[test]
    fn a_stream_that_has_nothing_is_asked_again_when_it_has_woken_its_task_or_another_asks() {
        let (mut readiness, mut stream) = (Readiness::default(), Silent::default());
        let tasks = [(); 2].map(|()| Arc::<Woken>::default());
        let wakers = tasks.clone().map(Waker::from);
        let mut ask = |stream: &mut Silent, task: usize| {
            let (mut room, mut context) = ([0], Context::from_waker(&wakers[task]));
            let polled = readiness.poll_read(stream, &mut context, &mut ReadBuf::new(&mut room));
            polled.is_ready()
        };
        for task in [0, 0, 0, 1, 1] {
            assert!(!ask(&mut stream, task));
        }
        assert_eq!(stream.asked, 2, "once by each task");
        stream.has_more = true;
        assert!(!ask(&mut stream, 1), "asked though it did not say that it has more");
        stream.reader.take().unwrap().wake();
        assert_eq!(tasks.map(|task| task.times()), [0, 1]);
        assert!(ask(&mut stream, 1) && ask(&mut stream, 1));
        assert_eq!(stream.asked, 4, "each time, as long as it has more");
    }
}
