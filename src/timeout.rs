//! A time-out for a future.
//!
//! It works like tokio's time-out, but sets a timer only if the future is pending at the first poll, because most
//! answers and most bodies are ready by then.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

/// The future took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

pin_project! {
    /// Resolves to the future's output, or to [`Elapsed`].
    #[derive(Debug)]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        // Boxed to keep `Timeout` small, because most futures never need a timer.
        timer: Option<Pin<Box<Sleep>>>,
        after: Duration,
    }
}

/// Waits for `future`, but no longer than `after` from its first poll.
pub fn timeout<F: Future>(after: Duration, future: F) -> Timeout<F> {
    Timeout { future, timer: None, after }
}

// === impl Timeout ===

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        let timer = this.timer.get_or_insert_with(|| Box::pin(sleep(*this.after)));
        timer.as_mut().poll(cx).map(|()| Err(Elapsed))
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::Instant;

    use super::*;

    #[test]
    fn ready_future_needs_no_timer() {
        // This test runs without a tokio runtime, so a timer would panic.
        let mut ready = std::pin::pin!(timeout(Duration::ZERO, ready(1)));
        assert_eq!(
            ready.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())),
            Poll::Ready(Ok(1))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn slow_future_times_out() {
        let begun = Instant::now();
        assert_eq!(timeout(Duration::from_secs(3), pending::<()>()).await, Err(Elapsed));
        assert_eq!(begun.elapsed(), Duration::from_secs(3));
    }
}
