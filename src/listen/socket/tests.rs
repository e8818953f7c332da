use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex, join, repeat, sink},
    time::Instant,
};

use super::*;
use crate::listen::{Config, activity::Closed};

/// Returns the time that a connection takes to close after a request whose body was not read.
async fn linger(io: impl AsyncRead + AsyncWrite + Unpin) -> Duration {
    let activity = Arc::new(Activity::default());
    activity.body_left_unread(false);
    let begun = Instant::now();
    Watched::new(io, activity).shutdown().await.unwrap();
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn linger_ends_when_the_peer_closes() {
    let (mut near, far) = duplex(64);
    let (lingered, ()) = tokio::join!(linger(far), async move {
        near.write_all(&[0; 1000]).await.unwrap();
        time::sleep(Duration::from_secs(1)).await;
    });
    assert_eq!(lingered.as_secs(), 1);
}

#[tokio::test(start_paused = true)]
async fn linger_ends_after_a_limit() {
    let (_near, far) = duplex(64);
    assert_eq!(linger(far).await.as_secs(), LINGER.as_secs());
    assert_eq!(linger(join(repeat(0), sink())).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn displaced_connection_does_not_linger() {
    let (_near, far) = duplex(64);
    let activity = Arc::new(Activity::default());
    activity.body_left_unread(false);
    activity.displace(false);
    let begun = Instant::now();
    Watched::new(far, activity).shutdown().await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn slowly_sent_request_head_is_closed() {
    let activity = Arc::new(Activity::default());
    let (mut near, far) = duplex(64);
    let mut watched = Watched::new(far, activity.clone());
    let dribble = async {
        loop {
            near.write_all(b"x").await.unwrap();
            watched.read_u8().await.unwrap();
            time::sleep(Duration::from_secs(1)).await;
        }
    };
    let config = Config::default();
    tokio::select! {
        () = dribble => unreachable!(),
        reason = activity.expired(&config) => assert_eq!(reason, Closed::Head),
    }
}

#[tokio::test(start_paused = true)]
async fn stalled_write_is_closed() {
    let activity = Arc::new(Activity::default());
    let (_near, far) = duplex(64);
    let mut watched = Watched::new(far, activity.clone());
    let writes = async { watched.write_all(&[0; 100]).await.unwrap() };
    let config = Config::default();
    tokio::select! {
        () = writes => unreachable!(),
        reason = activity.expired(&config) => assert_eq!(reason, Closed::Stalled),
    }
}

#[tokio::test(start_paused = true)]
async fn slow_reader_is_not_closed() {
    let activity = Arc::new(Activity::default());
    let (mut near, far) = duplex(64);
    let mut watched = Watched::new(far, activity.clone());
    let config = Config::default();
    let reading = async {
        for _ in 0..20 {
            time::sleep(config.stall_timeout / 2).await;
            near.read_u8().await.unwrap();
        }
    };
    tokio::select! {
        _ = watched.write_all(&[0; 100]) => unreachable!(),
        reason = activity.expired(&config) => panic!("{reason:?}"),
        () = reading => {}
    }
}
