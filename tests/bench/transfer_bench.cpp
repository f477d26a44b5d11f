// Transfers of files between transfer agents. Two processes over CURVE, like launcher and host
// agent, started by hand in two network namespaces:
//   transfer_bench keys FILE                                   makes the keys of both
//   transfer_bench serve KEYS HOST PORT FILE STORE [MEGABITS]  until the other has ended
//   transfer_bench fetch KEYS HOST PORT FILE STORE TO          until it has the file at TO
// A launcher and many hosts in one process, over links in memory, each with this many megabits a
// second up and down:
//   transfer_bench hosts chain|single same|own HOSTS MEGABYTES MEGABITS
// chain: each host fetches from the one before, as far as that has it; single: from the launcher
// alone. same: every host fetches the whole file; own: each its own part. All print one line of
// JSON.

#include <charconv>
#include <fstream>
#include <future>
#include <random>

#include "framework/net/node.h"
#include "launcher/hosts/transfer_agent.h"
#include "launcher/hosts/transfer_peers.h"
#include "tests/memory_links.h"

namespace strait::transfer {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kHold{60};
const net::ProcessName kServer = net::ProcessName::coordinator();
const net::ProcessName kFetcher = net::ProcessName::host_agent(0);

int parse_number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw std::invalid_argument(fmt::format("'{}' is not a number", text));
  }
  return value;
}

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

struct BenchKeys {
  net::CurveKeyPair server;
  net::CurveKeyPair fetcher;
};

void write_keys(const std::string& file) {
  std::ofstream out(file);
  for (int i = 0; i < 2; ++i) {
    const net::CurveKeyPair pair = net::CurveKeyPair::generate();
    out << pair.public_key << "\n" << pair.secret_key << "\n";
  }
}

BenchKeys read_keys(const std::string& file) {
  BenchKeys keys;
  std::ifstream in(file);
  in >> keys.server.public_key >> keys.server.secret_key;
  in >> keys.fetcher.public_key >> keys.fetcher.secret_key;
  return keys;
}

net::NodeOptions curve_node(const net::ProcessName& name, const net::CurveKeyPair& keys) {
  net::NodeOptions options;
  options.name = name;
  options.run = *net::RunId::parse("00112233445566778899aabbccddeeff");
  options.keys = keys;
  return options;
}

void serve(const std::vector<std::string>& args) {
  const BenchKeys keys = read_keys(args[1]);
  net::Node node(curve_node(kServer, keys.server));
  const auto listener = node.listen({args[2], static_cast<std::uint16_t>(parse_number(args[3]))});
  std::promise<void> ended;
  TransferAgentOptions options;
  options.store = args[5];
  if (args.size() == 7) options.upload_bytes_per_second = bytes_per_second(parse_number(args[6]));
  options.on_event = [&ended](const std::string& event) {
    fmt::print(stderr, "{}\n", event);
    ended.set_value();
  };
  TransferAgent agent(options);
  agent.offer(args[4]);
  agent.add_peer(
      kFetcher, "the fetcher",
      listener->expect(transfer_link(kServer, kFetcher, kFetcher, keys.fetcher.public_key, kHold)));
  ended.get_future().wait();
  fmt::print(stderr, "sent {}\n", agent.totals().sent_bytes);
}

void fetch(const std::vector<std::string>& args) {
  const BenchKeys keys = read_keys(args[1]);
  net::Node node(curve_node(kFetcher, keys.fetcher));
  const ChunkTable table = read_chunk_table(args[4]);
  TransferAgentOptions options;
  options.store = args[5];
  TransferAgent agent(options);
  auto link =
      node.connect(fmt::format("tcp://{}:{}", args[2], args[3]),
                   transfer_link(kServer, kFetcher, kServer, keys.server.public_key, kHold));
  // The handshake is not measured.
  while (!link->state().connected) link->receive_until(Clock::now() + std::chrono::milliseconds(1));
  agent.add_peer(kServer, "the server", std::move(link));
  const auto began = Clock::now();
  const std::uint64_t fetched =
      agent.fetch({table, ChunkSet::all(table.count()), args[6], {}}, {kServer}, [] {});
  fmt::print("{{\"seconds\": {:.3f}, \"fetched\": {}, \"repeated\": {}}}\n", seconds_since(began),
             fetched, agent.totals().repeated_bytes);
}

struct BenchHost {
  net::ProcessName name;
  fs::path directory;
  std::unique_ptr<TransferAgent> agent;
};

BenchHost start_host(const net::ProcessName& name, const fs::path& directory, double rate,
                     TransferAgentOptions options = {}) {
  fs::create_directories(directory);
  options.store = directory / "content";
  options.upload_bytes_per_second = rate;
  options.download_bytes_per_second = rate;
  return {name, directory, std::make_unique<TransferAgent>(options)};
}

void link_hosts(BenchHost& left, BenchHost& right) {
  auto [at_left, at_right] = memory_links(left.name, right.name, "ship");
  left.agent->add_peer(right.name, right.name.text(), std::move(at_left));
  right.agent->add_peer(left.name, left.name.text(), std::move(at_right));
}

void write_random_file(const fs::path& path, std::size_t bytes) {
  std::mt19937_64 generator(1);
  std::vector<std::uint64_t> words(bytes / sizeof(std::uint64_t));
  for (std::uint64_t& word : words) word = generator();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(words.data()), static_cast<std::streamsize>(bytes));
}

void transfer_to_hosts(const std::vector<std::string>& args) {
  const bool chain = args[1] == "chain";
  const bool same = args[2] == "same";
  const auto count = static_cast<std::uint32_t>(parse_number(args[3]));
  const auto bytes = static_cast<std::size_t>(parse_number(args[4])) * 1'000'000;
  const double rate = bytes_per_second(parse_number(args[5]));
  const fs::path root =
      fs::temp_directory_path() / ("transfer_bench-" + net::RunId::random().hex());
  std::vector<BenchHost> hosts;
  TransferAgentOptions options;
  options.ask = [&hosts](const net::ProcessName& host, const FileRequest& request,
                         const OnFileReply& on_reply) {
    // All agents are linked by hand.
    const auto* fetch = std::get_if<Fetch>(&request);
    if (fetch == nullptr) return on_reply(hosts::ListensAt{});
    hosts.at(host.replica).agent->perform(*fetch, on_reply);
  };
  BenchHost launcher =
      start_host(net::ProcessName::coordinator(), root / "launcher", rate, options);
  for (std::uint32_t i = 0; i < count; ++i) {
    hosts.push_back(start_host(net::ProcessName::host_agent(i), root / std::to_string(i), rate));
    link_hosts(launcher, hosts[i]);
    if (chain && i > 0) link_hosts(hosts[i - 1], hosts[i]);
  }
  write_random_file(root / "launcher/file", bytes);
  const ChunkTable table = launcher.agent->offer(root / "launcher/file");
  const auto began = Clock::now();
  std::vector<std::future<std::uint64_t>> fetches;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::vector<ByteRange> part = {{bytes / count * i, bytes / count * (i + 1)}};
    const ChunkSet chunks = same ? ChunkSet::all(table.count()) : ChunkSet::holding(table, part);
    fetches.push_back(launcher.agent->fetch_on(
        hosts[i].name, {table, chunks, hosts[i].directory / "file", FetchRequest::As::content},
        chain && same && i > 0 ? std::optional(hosts[i - 1].name) : std::nullopt));
  }
  std::uint64_t fetched = 0;
  for (auto& one : fetches) fetched += one.get();
  const double seconds = seconds_since(began);
  std::uint64_t repeated = 0;
  for (const BenchHost& host : hosts) repeated += host.agent->totals().repeated_bytes;
  fmt::print(
      "{{\"seconds\": {:.1f}, \"fetched\": {}, \"sent_by_launcher\": {}, \"repeated\": {}}}\n",
      seconds, fetched, launcher.agent->totals().sent_bytes, repeated);
  launcher.agent.reset();
  hosts.clear();
  fs::remove_all(root);
}

int run_transfer_bench(const std::vector<std::string>& args) {
  if (args.size() == 2 && args[0] == "keys") {
    write_keys(args[1]);
  } else if ((args.size() == 6 || args.size() == 7) && args[0] == "serve") {
    serve(args);
  } else if (args.size() == 7 && args[0] == "fetch") {
    fetch(args);
  } else if (args.size() == 6 && args[0] == "hosts") {
    transfer_to_hosts(args);
  } else {
    fmt::print(stderr, "usage: see the top of transfer_bench.cpp\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace strait::transfer

int main(int count, char** args) {
  try {
    return strait::transfer::run_transfer_bench({args + 1, args + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
