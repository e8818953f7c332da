use std::future::pending;

use http_body_util::Full;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

fn config() -> Config {
    Config::default()
}

/// Asserts that the watchdog closes the connection for this reason after about `limit`, while `happens` runs.
async fn assert_closes(
    activity: &Activity,
    happens: impl Future<Output = ()>,
    reason: Closed,
    limit: Duration,
) {
    let (config, start) = (config(), Instant::now());
    tokio::select! {
        () = happens => unreachable!(),
        closed = activity.expired(&config) => assert_eq!(closed, reason),
    }
    let elapsed = start.elapsed();
    assert!(
        elapsed >= limit && elapsed <= limit + limit / 2 + Duration::from_secs(5),
        "{elapsed:?} for {limit:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn silent_connection_is_closed() {
    let limit = config().first_byte_timeout;
    assert_closes(&Activity::default(), pending(), Closed::FirstByte, limit).await;
}

#[tokio::test(start_paused = true)]
async fn slowly_sent_request_head_is_closed() {
    let activity = Arc::new(Activity::default());
    let (mut near, far) = tokio::io::duplex(64);
    let mut watched = Watched::new(far, activity.clone());
    let dribble = async {
        loop {
            near.write_all(b"x").await.unwrap();
            watched.read_u8().await.unwrap();
            time::sleep(Duration::from_secs(1)).await;
        }
    };
    assert_closes(&activity, dribble, Closed::Head, config().head_timeout).await;
}

#[tokio::test(start_paused = true)]
async fn idle_connection_has_its_own_longer_timeout() {
    let activity = Arc::new(Activity::default());
    activity.has_read.store(true, Relaxed);
    drop(activity.begin_request(http::Version::HTTP_11));
    assert_closes(&activity, pending(), Closed::Idle, config().idle_timeout).await;
}

#[tokio::test(start_paused = true)]
async fn pings_do_not_keep_an_idle_connection_open() {
    let activity = Arc::new(Activity::default());
    drop(activity.begin_request(http::Version::HTTP_2));
    let pings = async {
        loop {
            time::sleep(Duration::from_secs(1)).await;
            activity.has_read.store(true, Relaxed);
        }
    };
    assert_closes(&activity, pings, Closed::Idle, config().idle_timeout).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_being_answered_is_not_closed() {
    let activity = Arc::new(Activity::default());
    let _in_flight = activity.begin_request(http::Version::HTTP_11);
    assert!(time::timeout(Duration::from_secs(3600), activity.expired(&config())).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn answer_that_the_client_does_not_read_is_closed() {
    let activity = Arc::new(Activity::default());
    let in_flight = activity.begin_request(http::Version::HTTP_2);
    let _body = WatchedBody::new(Full::<bytes::Bytes>::default(), in_flight);
    assert_closes(&activity, pending(), Closed::Stalled, config().stall_timeout).await;
}

#[tokio::test(start_paused = true)]
async fn answered_pings_do_not_count_as_reading() {
    let activity = Arc::new(Activity::default());
    let in_flight = activity.begin_request(http::Version::HTTP_2);
    let _body = WatchedBody::new(Full::<bytes::Bytes>::default(), in_flight);
    let pings = async {
        loop {
            time::sleep(Duration::from_secs(1)).await;
            let _ = noted(&activity, Poll::Ready(Ok(17)));
        }
    };
    assert_closes(&activity, pings, Closed::Stalled, config().stall_timeout).await;
}

#[tokio::test(start_paused = true)]
async fn stalled_write_is_closed() {
    let activity = Arc::new(Activity::default());
    let (_near, far) = tokio::io::duplex(64);
    let mut watched = Watched::new(far, activity.clone());
    let writes = async { watched.write_all(&[0; 100]).await.unwrap() };
    assert_closes(&activity, writes, Closed::Stalled, config().stall_timeout).await;
}

#[tokio::test(start_paused = true)]
async fn slow_reader_is_not_closed() {
    let activity = Arc::new(Activity::default());
    let (mut near, far) = tokio::io::duplex(64);
    let mut watched = Watched::new(far, activity.clone());
    let config = config();
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

/// Returns the eviction class of a connection after the watchdog has run for `wait`.
async fn standing_after(activity: &Activity, wait: Duration) -> EvictionClass {
    let config = config();
    tokio::select! {
        _ = activity.expired(&config) => unreachable!("the connection closed early"),
        () = time::sleep(wait) => activity.standing().0,
    }
}

#[tokio::test(start_paused = true)]
async fn slow_request_head_can_be_displaced_after_a_grace() {
    let head = Activity::default();
    assert_eq!(head.standing().0, EvictionClass::Idle);
    head.has_read.store(true, Relaxed);
    assert_eq!(standing_after(&head, HEAD_GRACE / 2).await, EvictionClass::Busy);
    assert_eq!(standing_after(&head, HEAD_GRACE * 2).await, EvictionClass::Head);
}

#[tokio::test(start_paused = true)]
async fn displaced_connection_is_closed_at_once_or_finishes() {
    let (new, idle) = (Activity::default(), Arc::new(Activity::default()));
    new.displace();
    assert_eq!(new.expired(&config()).await, Closed::Displaced);
    idle.has_read.store(true, Relaxed);
    drop(idle.begin_request(http::Version::HTTP_11));
    idle.displace();
    idle.finishing().await;
}
