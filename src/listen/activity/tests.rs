use std::future::pending;

use http_body_util::Full;

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
            activity.write_polled(false);
        }
    };
    assert_closes(&activity, pings, Closed::Stalled, config().stall_timeout).await;
}

/// Returns whether a displaced connection may answer a request that arrives at the same moment. Otherwise, the
/// connection is cut off.
async fn finishes(activity: &Activity, may_finish: bool) -> bool {
    activity.displace(may_finish);
    tokio::select! {
        () = activity.finish.notified() => true,
        () = activity.cut_off.notified() => false,
    }
}

#[tokio::test]
async fn displaced_connection_is_cut_off_or_finishes() {
    for (version, expected) in [(http::Version::HTTP_11, true), (http::Version::HTTP_2, false)] {
        let idle = Arc::new(Activity::default());
        drop(idle.begin_request(version));
        assert_eq!(finishes(&idle, true).await, expected, "{version:?}");
        assert!(!finishes(&idle, false).await, "{version:?}");
        let _in_flight = idle.begin_request(version);
        assert!(!finishes(&idle, true).await, "{version:?}");
    }
    let new = Activity::default();
    new.has_read.store(true, Relaxed);
    assert!(!finishes(&new, true).await);
}

#[tokio::test(start_paused = true)]
async fn idle_ticks_count_from_the_last_request() {
    let activity = Arc::new(Activity::default());
    drop(activity.begin_request(http::Version::HTTP_11));
    let config = config();
    for _ in 0..2 {
        let waited = time::timeout(config.idle_timeout / 2, activity.expired(&config)).await;
        assert!(waited.is_err() && activity.idle_ticks.load(Relaxed) > 3);
        drop(activity.begin_request(http::Version::HTTP_11));
        assert_eq!(activity.idle_ticks.load(Relaxed), 0);
    }
}
