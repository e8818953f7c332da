//! Commands, variables, routes, ports and times in the deployment files match the program.

use std::{collections::BTreeSet, fs, path::Path};

use bytesize::ByteSize;
use holdfast::config::Config;

use crate::support::{
    client, process,
    program::{Program, file, holdfast, output, success, text},
    tools, upstream,
};

const UNIT: &str = "config/deploy/systemd/holdfast.service";
const POD: &str = "config/deploy/kubernetes/sidecar.yaml";
const IMAGE: &str = "docker/Dockerfile";
const COMPOSE: &str = "docker/compose.yaml";
const DOCS: &str = "docs/deploying.md";
const ALL: [&str; 5] = [UNIT, POD, IMAGE, COMPOSE, DOCS];

/// A valid URL at which no server listens.
const NOWHERE: &str = "http://127.0.0.1:1";

fn path(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn read(file: &str) -> String {
    fs::read_to_string(path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns the text after `key` on the lines that begin with it, with or without a dash.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let lines = text.lines().map(|line| line.trim().trim_start_matches("- "));
    lines.filter_map(|line| line.strip_prefix(key)).map(|value| value.trim().trim_matches('"')).collect()
}

fn value<'a>(text: &'a str, key: &str) -> &'a str {
    let found = values(text, key);
    assert_eq!(found.len(), 1, "{key} in {found:?}");
    found[0]
}

/// Returns the number that follows the first `key`.
fn number(text: &str, key: &str) -> u64 {
    let (_, rest) = text.split_once(key).unwrap_or_else(|| panic!("no {key}"));
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number after {key}"))
}

/// Returns the words of `["a", "b"]` or of `[a, b]`.
fn words(list: &str) -> Vec<String> {
    let list = list.trim().trim_start_matches('[').trim_end_matches(']');
    list.split(',').map(|word| word.trim().trim_matches('"').to_owned()).collect()
}

/// Returns the lines of all blocks of shell commands.
fn shell(markdown: &str) -> Vec<&str> {
    let blocks = markdown.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.flat_map(str::lines).collect()
}

/// Returns the arguments of `holdfast` in a shell or unit command that runs it directly or as the image of `docker
/// run`.
fn arguments(command: &str) -> Option<Vec<String>> {
    let command = command.split(" > ").next().unwrap();
    let mut words = command.split_whitespace().map(str::to_owned);
    let first = words.find(|word| !word.contains('='))?;
    let is_image = first == "docker" && words.next().is_some_and(|word| word == "run");
    if is_image {
        words.find(|word| word == "holdfast")?;
    }
    (is_image || first.rsplit('/').next() == Some("holdfast")).then(|| words.collect())
}

/// Returns all command lines of `holdfast` in the deployment files.
fn invocations() -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let unit = read(UNIT);
    for key in ["ExecStartPre=", "ExecStart=", "ExecReload="] {
        found.extend(values(&unit, key).into_iter().filter_map(arguments));
    }
    let image = read(IMAGE);
    assert_eq!(words(value(&image, "ENTRYPOINT ")), ["holdfast"]);
    found.push(words(value(&image, "CMD ")));
    let (_, check) = value(&image, "HEALTHCHECK ").split_once("CMD ").unwrap();
    let check = words(check);
    assert_eq!(check[0], "holdfast");
    found.push(check[1..].to_vec());
    found.extend(values(&image, "#").into_iter().filter_map(arguments));
    let compose = read(COMPOSE);
    // Adds the commands of the compose file, except that of Redis.
    let commands = values(&compose, "command:").into_iter().map(words);
    found.extend(commands.filter(|words| words[0] != "redis-server"));
    found.extend(values(&read(POD), "args:").into_iter().map(words));
    found.extend(shell(&read(DOCS)).into_iter().filter_map(arguments));
    // Without arguments the image runs its CMD, which is already in the list.
    found.retain(|arguments| !arguments.is_empty());
    found
}

/// Returns the `HOLDFAST_` variables that a text sets, with their values.
fn variables(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        for (at, _) in line.match_indices("HOLDFAST_") {
            let name: String =
                line[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            let rest = &line[at + name.len()..];
            let next = lines.peek().map_or("", |next| next.trim());
            let value = if let Some(value) = rest.strip_prefix('=') {
                let value = value.split([' ', '`', ')', ',']).next().unwrap();
                value.trim_matches('\'')
            } else if let Some(value) = rest.strip_prefix(": ") {
                let value = value.trim().trim_matches('\'');
                let default = value.strip_prefix("${").and_then(|value| value.split_once(":-"));
                default.map_or(value, |(_, default)| default.trim_end_matches('}'))
            } else {
                next.strip_prefix("value: ").unwrap_or_default()
            };
            found.push((name, value.to_owned()));
        }
    }
    found
}

async fn is_understood(variables: &[(String, String)]) -> bool {
    let mut check = holdfast(&["check", "--offline", "--upstream", NOWHERE]);
    check.envs(variables.iter().map(|(name, value)| (name, value)));
    let ran = output(check).await;
    ran.status.success()
}

#[tokio::test]
async fn commands_in_deployment_files_are_valid() {
    let invocations = invocations();
    let used: BTreeSet<_> = invocations.iter().map(|arguments| arguments[0].as_str()).collect();
    let all = ["check", "completions", "demo", "health", "serve"];
    assert_eq!(used, BTreeSet::from(all), "{invocations:?}");
    assert!(invocations.len() >= 10, "{invocations:?}");
    for arguments in invocations {
        // With `--help`, the program parses the arguments before it, including values, and does nothing else.
        let arguments: Vec<_> = arguments.iter().map(String::as_str).chain(["--help"]).collect();
        let ran = output(holdfast(&arguments)).await;
        assert!(ran.status.success(), "{arguments:?}: {}", text(&ran.stderr));
    }
    // Checks that an unknown flag fails even with `--help`. Otherwise this test would prove nothing.
    let ran = output(holdfast(&["serve", "--no-such-flag", "--help"])).await;
    assert_eq!(ran.status.code(), Some(64));
}

#[tokio::test]
async fn variables_in_deployment_files_are_keys() {
    let mut seen = BTreeSet::new();
    for file in ALL {
        let mut set = Vec::new();
        for (name, value) in variables(&read(file)) {
            // The deployment files take the value of this variable from a secret or another variable.
            let value = if name == "HOLDFAST_UPSTREAM_URL" { NOWHERE.to_owned() } else { value };
            if value.is_empty() {
                continue;
            }
            let mut alone = vec![(name.clone(), value.clone())];
            if name == "HOLDFAST_CACHE__DISK__SIZE" {
                // A size is valid only with a path.
                alone.push(("HOLDFAST_CACHE__DISK__PATH".to_owned(), "/var/lib/holdfast".to_owned()));
            }
            assert!(is_understood(&alone).await, "{file}: {name}={value}");
            seen.insert(name.clone());
            set.push((name, value));
        }
        assert!(is_understood(&set).await, "{file}: {set:?}");
    }
    assert!(seen.len() >= 7, "{seen:?}");
    let unknown = [("HOLDFAST_HTTP__NO_SUCH_KEY".to_owned(), "1".to_owned())];
    assert!(!is_understood(&unknown).await);
}

#[test]
fn variables_of_a_text_are_found() {
    let text = "ENV HOLDFAST_A=0.0.0.0:1 \\\n  HOLDFAST_B__C: '[\"x\"]'\n  HOLDFAST_D: ${D:-512 MiB}\n\
                - name: HOLDFAST_E\n  value: 127.0.0.1:1\nas `HOLDFAST_F=5s` says";
    let found = variables(text);
    let found: Vec<_> = found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let expected = [
        ("HOLDFAST_A", "0.0.0.0:1"),
        ("HOLDFAST_B__C", "[\"x\"]"),
        ("HOLDFAST_D", "512 MiB"),
        ("HOLDFAST_E", "127.0.0.1:1"),
        ("HOLDFAST_F", "5s"),
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn probed_paths_exist() {
    let node = upstream::devchain().run().await;
    let process = process::serve(&node).run().await;
    let pod = read(POD);
    let mut paths: BTreeSet<_> =
        values(&pod, "httpGet: { path: ").into_iter().filter_map(|rest| rest.split(',').next()).collect();
    assert_eq!(paths, BTreeSet::from(["/live", "/ready"]));
    // Prometheus scrapes `/metrics` by default.
    assert!(!read("docker/prometheus/prometheus.yml").contains("metrics_path"));
    paths.insert("/metrics");
    for path in paths {
        let answer = process.client().get(&format!("{}{path}", process.admin_url())).await;
        assert_eq!(answer.status, 200, "{path}");
    }
}

#[tokio::test]
async fn image_health_check_works_with_its_variables() {
    let node = upstream::devchain().run().await;
    let image = variables(&read(IMAGE));
    let of = |name: &str| {
        let found = image.iter().find(|(known, value)| known == name && !value.is_empty());
        found.unwrap_or_else(|| panic!("{name} is not set")).1.clone()
    };
    let (listen, admin) = (of("HOLDFAST_LISTEN"), of("HOLDFAST_ADMIN"));
    let defaults = Config::default();
    assert_eq!(listen, format!("0.0.0.0:{}", defaults.listen.port()));
    assert_eq!(admin, format!("0.0.0.0:{}", defaults.admin.port()));

    // The program uses free ports.
    let mut command = holdfast(&["serve", "--upstream", &node.url()]);
    command.env("HOLDFAST_LISTEN", "0.0.0.0:0").env("HOLDFAST_ADMIN", "0.0.0.0:0");
    let program = Program::start(command);
    let line = program.line("is listening").await;
    let bound = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name)).unwrap();
    let check = || {
        let mut check = holdfast(&["health"]);
        check.env("HOLDFAST_ADMIN", bound("admin="));
        check
    };
    assert_eq!(success(check).await, "live\n");
    let port = bound("listen=").rsplit(':').next().unwrap();
    assert!(
        client::at(&format!("http://127.0.0.1:{port}"))
            .ask("eth_chainId", serde_json::json!([]))
            .await
            .is_ok()
    );
}

#[test]
fn deployment_files_use_the_default_ports() {
    let defaults = Config::default();
    let (rpc, admin) = (defaults.listen.port(), defaults.admin.port());
    assert_eq!(value(&read(IMAGE), "EXPOSE "), format!("{rpc} {admin}"));
    let compose = read(COMPOSE);
    for port in [rpc, admin] {
        assert!(compose.contains(&format!(":-{port}}}:{port}\"")), "{port}");
    }
    assert!(read(POD).contains(&format!("{{ name: admin, containerPort: {admin} }}")));
    assert!(read("docker/prometheus/prometheus.yml").contains(&format!("[\"holdfast:{admin}\"]")));
    // The compose file publishes ports on loopback only.
    let published = compose.lines().filter(|line| line.trim().starts_with("- \"") && line.contains("PORT"));
    let (mine, others): (Vec<_>, Vec<_>) = published.partition(|line| line.contains("\"127.0.0.1:"));
    assert_eq!((mine.len(), others.len()), (6, 0), "{others:?}");
}

#[test]
fn stop_timeouts_are_longer_than_draining() {
    let config = Config::default();
    let takes = (config.drain_delay + 2 * config.connections.drain_timeout).as_secs();
    assert!(takes >= 10, "{takes}");
    let unit = number(&read(UNIT), "TimeoutStopSec=");
    let compose = number(&read(COMPOSE), "stop_grace_period:");
    let pod = read(POD);
    let (pod, before) = (number(&pod, "terminationGracePeriodSeconds:"), number(&pod, "sleep: { seconds:"));
    for (what, has) in [(UNIT, unit), (COMPOSE, compose), (POD, pod - before)] {
        assert!(has > takes, "{what} allows {has} s, but draining may take {takes} s");
    }
    let docs = read(DOCS);
    for seconds in [unit, compose, pod] {
        assert!(docs.contains(&format!("{seconds} s in")), "{seconds}");
    }
}

#[tokio::test]
async fn systemd_accepts_the_unit() {
    if !tools::at_hand("systemd_accepts_the_unit", "systemd-analyze") {
        return;
    }
    let unit = read(UNIT).replace("/usr/local/bin/holdfast", env!("CARGO_BIN_EXE_holdfast"));
    let unit = file("holdfast.service", &unit);
    let mut verify = std::process::Command::new("systemd-analyze");
    verify.arg("verify").arg(unit);
    let said = text(&output(verify).await.stderr);
    // Ignores messages about other units of this machine.
    let of_ours: Vec<_> = said.lines().filter(|line| line.contains("holdfast")).collect();
    assert!(of_ours.is_empty(), "{of_ours:#?}");
}

#[test]
fn pod_memory_limit_covers_its_configuration() {
    let pod = read(POD);
    let set = variables(&pod);
    let of =
        |name: &str| -> ByteSize { set.iter().find(|(known, _)| known == name).unwrap().1.parse().unwrap() };
    let needed = of("HOLDFAST_CACHE__SIZE").as_u64() + of("HOLDFAST_MAX_BYTES_IN_FLIGHT").as_u64();
    let limit = ByteSize::mib(number(&pod, "limits: { memory:")).as_u64();
    assert!(limit >= needed + ByteSize::mib(256).as_u64(), "{limit} for {needed}");
}

#[test]
fn image_and_pod_run_as_the_same_user() {
    let (image, pod) = (read(IMAGE), read(POD));
    let user = value(&image, "USER ");
    assert_eq!(user, format!("{}:{}", value(&pod, "runAsUser:"), value(&pod, "runAsGroup:")));
    assert!(image.contains(&format!("--chown={user} ")));
    assert!(read("docker/test").contains(&format!("id -u)\" = {} ]", value(&pod, "runAsUser:"))));
    assert!(!image.contains("# syntax="));
    // The user can write to the disk tier of the compose file.
    let data = variables(&read(COMPOSE)).into_iter().find(|(name, _)| name == "HOLDFAST_CACHE__DISK__PATH");
    let (_, data) = data.unwrap();
    assert!(image.contains(&format!("--chown={user} /build/data {data}\nVOLUME {data}\n")), "{data}");
    assert!(read(COMPOSE).contains(&format!("- data:{data}\n")));
}

#[test]
fn image_copies_existing_files() {
    let image = read(IMAGE);
    let manifest = read("Cargo.toml");
    let rust = value(&manifest, "rust-version = ").trim_matches('"').to_owned();
    assert!(value(&image, "ARG RUST_IMAGE=").starts_with(&format!("rust:{rust}-")), "{rust}");
    let ignored = read(".dockerignore");
    let copied = image.lines().filter_map(|line| line.strip_prefix("COPY "));
    let copied: BTreeSet<_> = copied
        .filter(|files| !files.contains("--from"))
        .flat_map(|files| {
            let mut files: Vec<_> = files.split_whitespace().collect();
            files.pop();
            files
        })
        .collect();
    let allowed: BTreeSet<_> = values(&ignored, "!").into_iter().collect();
    assert_eq!(copied, allowed);
    for file in copied {
        assert!(path(file).exists(), "{file}");
    }
}

#[test]
fn files_named_by_compose_and_docs_exist() {
    let compose = read(COMPOSE);
    let mounted: Vec<_> =
        values(&compose, "./").into_iter().filter_map(|rest| rest.split(':').next()).collect();
    assert_eq!(mounted, ["prometheus", "grafana"]);
    for folder in mounted {
        assert!(path("docker").join(folder).is_dir(), "{folder}");
    }
    let provisioning = value(&compose, "GF_PATHS_PROVISIONING: /etc/grafana/holdfast/");
    for file in ["datasources/prometheus.yaml", "dashboards/holdfast.yaml"] {
        assert!(path("docker/grafana").join(provisioning).join(file).is_file(), "{file}");
    }

    let docs = read(DOCS);
    for link in docs.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        let file = link.split('#').next().unwrap();
        assert!(file.is_empty() || path("docs").join(file).is_file(), "{link}");
    }
    let profiles: BTreeSet<_> = values(&compose, "profiles:").into_iter().flat_map(words).collect();
    assert_eq!(profiles, ["demo", "fleet", "node", "observe"].map(str::to_owned).into());
    let commands = shell(&docs).into_iter().chain(compose.lines());
    let asked: BTreeSet<_> = commands
        .flat_map(|line| line.split("--profile ").skip(1).filter_map(|rest| rest.split(' ').next()))
        .map(str::to_owned)
        .collect();
    assert_eq!(asked, profiles);
    let default = read("docker/.env");
    assert!(profiles.contains(value(&default, "COMPOSE_PROFILES=")));
    for line in shell(&docs) {
        for word in
            line.split_whitespace().filter(|word| word.starts_with("config/") || word.starts_with("docker/"))
        {
            assert!(path(word).is_file(), "{word}");
        }
    }
}
