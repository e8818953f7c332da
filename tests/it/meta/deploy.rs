//! Commands, variables, routes, ports, sizes and times in the deployment files match the program.

use std::{collections::BTreeSet, fs, path::Path};

use bytesize::ByteSize;
use holdfast::config::{Config, Sources};

use crate::support::{
    client, process,
    program::{Program, file, holdfast, output, success, text},
    tools, upstream,
};

const UNIT: &str = "config/deploy/systemd/holdfast.service";
const UNIT_CONFIG: &str = "config/deploy/systemd/holdfast.toml";
const IMAGE: &str = "docker/Dockerfile";
const BASE: &str = "docker/compose.base.yaml";
const SINGLE: &str = "docker/compose.single.yaml";
const FLEET: &str = "docker/compose.fleet.yaml";
const OBSERVE: &str = "docker/compose.observe.yaml";
const COMPOSE: [&str; 5] = [BASE, "docker/compose.demo.yaml", SINGLE, FLEET, OBSERVE];
const DOCS: &str = "docs/deploying.md";

/// A pod with an application and Holdfast beside it.
pub(super) const SIDECAR: &str = "config/deploy/kubernetes/sidecar.yaml";
/// Holdfast as a service of its own.
pub(super) const STANDALONE: &str = "config/deploy/kubernetes/standalone.yaml";
pub(super) const CHART: &str = "config/deploy/helm";

/// A valid URL at which no server listens.
const NOWHERE: &str = "http://127.0.0.1:1";

pub(super) fn path(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

pub(super) fn read(file: &str) -> String {
    fs::read_to_string(path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns the text of all compose files.
fn compose() -> String {
    COMPOSE.map(read).concat()
}

/// Returns the number of bytes that a Holdfast with these sizes may need.
pub(super) fn memory(cache: u64, in_flight: u64) -> u64 {
    cache + in_flight + ByteSize::mib(256).as_u64()
}

fn default_memory() -> u64 {
    let config = Config::default();
    memory(config.cache.size.as_u64(), config.max_bytes_in_flight.as_u64())
}

/// Returns the text after `key` on the lines that begin with it, with or without a dash.
pub(super) fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let lines = text.lines().map(|line| line.trim().trim_start_matches("- "));
    lines.filter_map(|line| line.strip_prefix(key)).map(|value| value.trim().trim_matches('"')).collect()
}

pub(super) fn value<'a>(text: &'a str, key: &str) -> &'a str {
    let found = values(text, key);
    assert_eq!(found.len(), 1, "{key} in {found:?}");
    found[0]
}

/// Returns the number that follows the first `key`.
pub(super) fn number(text: &str, key: &str) -> u64 {
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
    let compose = compose();
    // Adds the commands of the compose files, except those of Redis and Prometheus.
    let commands = values(&compose, "command:").into_iter().map(words);
    found.extend(commands.filter(|words| !matches!(&*words[0], "redis-server" | "")));
    let checks = values(&compose, "test: [CMD, holdfast, ").into_iter().map(words);
    found.extend(checks);
    for pod in [SIDECAR, STANDALONE] {
        found.push(words(value(&read(pod), "args:")));
    }
    found.extend(shell(&read(DOCS)).into_iter().filter_map(arguments));
    // Without arguments the image runs its CMD, which is already in the list.
    found.retain(|arguments| !arguments.is_empty());
    found
}

/// Returns the `HOLDFAST_` variables that a text sets, with their values.
pub(super) fn variables(text: &str) -> Vec<(String, String)> {
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
    let secret = file("secret", "redis://:password@127.0.0.1:1");
    let secret = secret.to_str().unwrap();
    for file in COMPOSE.into_iter().chain([SIDECAR, STANDALONE, IMAGE, DOCS]) {
        let mut set = Vec::new();
        for (name, value) in variables(&read(file)) {
            // The pods take the value of this variable from a secret.
            let value = if name == "HOLDFAST_UPSTREAM_URL" { NOWHERE.to_owned() } else { value };
            let value = value
                .replace("/run/secrets/redis-url", secret)
                .replace("{url={file=\"/run/secrets/upstream-url\"}}", &format!("{{url=\"{NOWHERE}\"}}"));
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
    let template = format!("{CHART}/templates/deployment.yaml");
    let mut paths = BTreeSet::from(["/live", "/ready"]);
    for pod in [SIDECAR, STANDALONE, &template] {
        let pod = read(pod);
        let probed = values(&pod, "httpGet: { path: ").into_iter().filter_map(|rest| rest.split(',').next());
        assert_eq!(probed.collect::<Vec<_>>(), ["/live", "/ready", "/live"]);
    }
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
    let (rpc, admin) = (program.rpc_address().await, program.admin_address().await);
    let check = || {
        let mut check = holdfast(&["health"]);
        check.env("HOLDFAST_ADMIN", admin.to_string());
        check
    };
    assert_eq!(success(check).await, "live\n");
    assert!(
        client::at(&format!("http://127.0.0.1:{}", rpc.port()))
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
    for file in ["docker/compose.demo.yaml", SINGLE, FLEET] {
        let compose = read(file);
        for port in [rpc, admin] {
            assert!(compose.contains(&format!(":-{port}}}:{port}\"")), "{file}: {port}");
        }
    }
    for pod in [SIDECAR, STANDALONE] {
        assert!(read(pod).contains(&format!("{{ name: admin, containerPort: {admin} }}")));
    }
    // Compose publishes ports on loopback only.
    let compose = compose();
    let published = compose.lines().filter(|line| line.trim().starts_with("- \"") && line.contains("PORT"));
    let (mine, others): (Vec<_>, Vec<_>) = published.partition(|line| line.contains("\"127.0.0.1:"));
    assert_eq!((mine.len(), others.len()), (10, 0), "{others:?}");
}

#[test]
fn prometheus_scrapes_every_instance() {
    let admin = Config::default().admin.port();
    for (file, instances) in
        [("demo", &["demo"][..]), ("single", &["holdfast"]), ("fleet", &["first", "second"])]
    {
        let compose = read(&format!("docker/compose.{file}.yaml"));
        let targets = value(&compose, "file: ./prometheus/targets/");
        let targets = read(&format!("docker/prometheus/targets/{targets}"));
        let expected: Vec<_> = instances.iter().map(|name| format!("{name}:{admin}")).collect();
        assert_eq!(words(value(&targets, "targets:")), expected, "{file}");
        for name in instances {
            assert!(compose.contains(&format!("\n  {name}:\n")), "{file}: {name}");
        }
    }
    let mounted = read(OBSERVE);
    let (_, mounted) = mounted.split_once("source: targets, target: ").unwrap();
    let mounted = mounted.split(' ').next().unwrap();
    assert!(read("docker/prometheus/prometheus.yml").contains(&format!("files: [{mounted}]")));
}

#[test]
fn stop_timeouts_are_longer_than_draining() {
    let config = Config::default();
    let takes = (config.drain_delay + 2 * config.connections.drain_timeout).as_secs();
    assert!(takes >= 10, "{takes}");
    let unit = number(&read(UNIT), "TimeoutStopSec=");
    let compose = number(&read(BASE), "stop_grace_period:");
    let sidecar = number(&read(SIDECAR), "terminationGracePeriodSeconds:");
    let standalone = read(STANDALONE);
    let delay = number(&standalone, "name: HOLDFAST_DRAIN_DELAY\n              value:");
    let standalone = number(&standalone, "terminationGracePeriodSeconds:");
    for (what, has) in [(UNIT, unit), (BASE, compose), (SIDECAR, sidecar), (STANDALONE, standalone - delay)] {
        assert!(has > takes, "{what} allows {has} s, but draining may take {takes} s");
    }
    let docs = read(DOCS);
    for seconds in [unit, compose, sidecar, standalone] {
        assert!(docs.contains(&format!("{seconds} s in")), "{seconds}");
    }
}

#[test]
fn wrong_configuration_is_not_restarted() {
    let unit = read(UNIT);
    assert_eq!(value(&unit, "RestartPreventExitStatus="), "64");
    assert_eq!(value(&unit, "StartLimitIntervalSec="), "0");
    // systemd ignores `RestartPreventExitStatus` for this command, and would restart it for ever.
    assert!(values(&unit, "ExecStartPre=").is_empty());
    for file in [SINGLE, FLEET] {
        assert_eq!(value(&read(file), "check: {"), "condition: service_completed_successfully }", "{file}");
    }
}

#[test]
fn memory_limits_cover_the_default_sizes() {
    let needed = default_memory();
    for (file, key) in [(BASE, "mem_limit: ${MEMORY_LIMIT:-"), (UNIT, "MemoryMax=")] {
        let mebibytes = number(&read(file), key);
        assert!(ByteSize::mib(mebibytes).as_u64() >= needed, "{file}: {mebibytes} MiB for {needed}");
    }
}

#[test]
fn unit_configuration_is_short_and_valid() {
    let config = Sources::none().with_file(Some(path(UNIT_CONFIG))).load().unwrap();
    let state = config.cache.disk.unwrap().path;
    assert_eq!(state, Path::new("/var/lib").join(value(&read(UNIT), "StateDirectory=")));
    let text = read(UNIT_CONFIG);
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    assert!(lines.count() <= 10);
}

#[test]
fn images_are_pinned() {
    let images = |file: &str| -> Vec<String> {
        values(&read(file), "image: ").into_iter().map(str::to_owned).collect()
    };
    let mut seen = 0;
    for image in COMPOSE.into_iter().chain([SIDECAR, STANDALONE]).flat_map(images) {
        let name = image.split_once(":-").map_or(&*image, |(_, default)| default.trim_end_matches('}'));
        let tag = name.rsplit_once(':').map_or("", |(_, tag)| tag);
        let has_patch = tag.matches('.').count() == 2;
        assert!(has_patch || name == "scratch", "{image}");
        seen += 1;
    }
    assert!(seen >= 7, "{seen}");
}

#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn systemd_accepts_the_unit() {
    let Some(analyze) = tools::systemd_analyze("systemd_accepts_the_unit") else { return };
    let unit = read(UNIT).replace("/usr/local/bin/holdfast", env!("CARGO_BIN_EXE_holdfast"));
    let unit = file("holdfast.service", &unit);
    let mut verify = std::process::Command::new(analyze);
    verify.arg("verify").arg(unit);
    let said = text(&output(verify).await.stderr);
    // Ignores messages about other units of this machine.
    let of_ours: Vec<_> = said.lines().filter(|line| line.contains("holdfast")).collect();
    assert!(of_ours.is_empty(), "{of_ours:#?}");
}

#[test]
fn image_and_pods_run_as_the_same_user() {
    let image = read(IMAGE);
    let user = value(&image, "USER ");
    for pod in [SIDECAR, STANDALONE] {
        let pod = read(pod);
        assert_eq!(user, format!("{}:{}", value(&pod, "runAsUser:"), value(&pod, "runAsGroup:")));
    }
    assert!(read("docker/test").contains(&format!(".Config.User {user}\n")));
    assert!(!image.contains("# syntax="));
    // The user can write to the disk tier of the compose file, and the image leaves no volume without a name.
    let single = read(SINGLE);
    let data = variables(&single).into_iter().find(|(name, _)| name == "HOLDFAST_CACHE__DISK__PATH");
    let (_, data) = data.unwrap();
    assert!(image.contains(&format!("--chown={user} /build/data {data}\n")), "{data}");
    assert!(single.contains(&format!("- data:{data}\n")));
    assert!(values(&image, "VOLUME ").is_empty());
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
    let observe = read(OBSERVE);
    let mounted: Vec<_> =
        values(&observe, "./").into_iter().filter_map(|rest| rest.split(':').next()).collect();
    assert_eq!(mounted, ["prometheus", "grafana"]);
    for folder in mounted {
        assert!(path("docker").join(folder).is_dir(), "{folder}");
    }
    let provisioning = value(&observe, "GF_PATHS_PROVISIONING: /etc/grafana/holdfast/");
    for file in ["datasources/prometheus.yaml", "dashboards/holdfast.yaml"] {
        assert!(path("docker/grafana").join(provisioning).join(file).is_file(), "{file}");
    }

    let docs = read(DOCS);
    for link in docs.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        let file = link.split('#').next().unwrap();
        assert!(file.is_empty() || path("docs").join(file).exists(), "{link}");
    }
    let (compose, unit) = (compose(), read(UNIT));
    let commands = shell(&docs).into_iter().chain(compose.lines()).chain(unit.lines());
    let mut seen = BTreeSet::new();
    for word in commands.filter(|line| !line.contains("image:")).flat_map(str::split_whitespace) {
        let is_ours = word.starts_with("config/") || word.starts_with("docker/");
        // The operator writes the secrets.
        if is_ours && !word.starts_with("docker/secrets") {
            assert!(path(word).exists(), "{word}");
            seen.insert(word);
        }
    }
    // The docs or the comments of the files show how to start each of them.
    for file in &COMPOSE[1..] {
        assert!(seen.contains(file), "{file}");
    }
    assert!(read(".gitignore").contains("/docker/secrets\n"));
}
