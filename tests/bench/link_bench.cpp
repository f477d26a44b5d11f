// A link between two processes of this machine, with and without shared memory, in turns:
//   link_bench MEGABYTES ROUNDS [BYTES ...]   frames of so many bytes; 256 KiB to 16 MiB if absent
// Prints a line of JSON for each round and size: GB/s, and processor seconds a GB of both
// processes.
#include <fmt/format.h>
#include <sys/resource.h>

#include <charconv>
#include <thread>

#include "framework/bytes.h"
#include "framework/net/node.h"
#include "tests/child_process.h"

namespace strait::net {
namespace {

using Clock = std::chrono::steady_clock;

constexpr ProcessName kSender{0, 0};
constexpr ProcessName kReceiver{1, 0};

struct Bench {
  CurveKeyPair sender = CurveKeyPair::generate();
  CurveKeyPair receiver = CurveKeyPair::generate();
  bool in_memory = false;
  std::size_t frame_bytes = 0;
  std::size_t frames = 0;
};

double processor_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

NodeOptions node_options(const ProcessName& name, const CurveKeyPair& keys) {
  NodeOptions options;
  options.name = name;
  options.run = *RunId::parse("00112233445566778899aabbccddeeff");
  options.keys = keys;
  return options;
}

LinkOptions link_options(const Bench& bench, const ProcessName& peer, const CurveKeyPair& keys) {
  LinkOptions options;
  options.name = "bench";
  options.peer = peer;
  options.peer_public_key = keys.public_key;
  options.shared_memory = bench.in_memory;
  return options;
}

// Answers the last frame with the processor seconds that it took.
void receive(const Bench& bench, int endpoint_to) {
  Node node(node_options(kReceiver, bench.receiver));
  const auto listener = node.listen({});
  const auto link = listener->expect(link_options(bench, kSender, bench.sender));
  const std::string endpoint = listener->endpoint() + "\n";
  if (::write(endpoint_to, endpoint.data(), endpoint.size()) < 0) throw std::runtime_error("pipe");
  link->receive();
  const double before = processor_seconds();
  for (std::size_t i = 0; i < bench.frames; ++i) link->receive();
  Frame answer;
  append_value(answer, processor_seconds() - before);
  link->send(std::move(answer));
  try {
    link->receive();
  } catch (const LinkError&) {
    // The sender has the answer and is gone.
  }
}

void send(const Bench& bench, const std::string& endpoint) {
  Node node(node_options(kSender, bench.sender));
  const auto link = node.connect(endpoint, link_options(bench, kReceiver, bench.receiver));
  link->send(Frame(1));
  link->flush(Clock::now() + std::chrono::seconds(10));
  while (bench.in_memory && !link->state().in_memory) std::this_thread::yield();
  const double before = processor_seconds();
  const auto began = Clock::now();
  for (std::size_t i = 0; i < bench.frames; ++i) {
    Frame frame(bench.frame_bytes);
    link->send(std::move(frame));
  }
  const Frame answer = link->receive();
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  const double used = processor_seconds() - before + ByteReader(answer).value<double>();
  const double gigabytes = 1e-9 * static_cast<double>(bench.frames * bench.frame_bytes);
  fmt::print(
      "{{\"memory\": {}, \"bytes\": {}, \"gb_per_second\": {:.3f}, \"cpu_seconds_per_gb\": "
      "{:.3f}}}\n",
      bench.in_memory, bench.frame_bytes, gigabytes / seconds, used / gigabytes);
  std::fflush(stdout);
}

void run_once(const Bench& bench) {
  std::array<int, 2> pipe{};
  if (::pipe(pipe.data()) != 0) throw std::runtime_error("no pipe");
  const ChildProcess receiver([&](int ready) {
    ChildProcess::report_ready(ready);
    receive(bench, pipe[1]);
  });
  std::string endpoint;
  for (char letter = 0; ::read(pipe[0], &letter, 1) == 1 && letter != '\n';) endpoint += letter;
  send(bench, endpoint);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

std::size_t number(std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value == 0) {
    throw std::invalid_argument(fmt::format("'{}' is no number", text));
  }
  return value;
}

void run(const std::vector<std::string>& args) {
  if (args.size() < 2) throw std::invalid_argument("link_bench MEGABYTES ROUNDS [BYTES ...]");
  std::vector<std::size_t> sizes;
  for (std::size_t i = 2; i < args.size(); ++i) sizes.push_back(number(args[i]));
  if (sizes.empty()) sizes = {256 << 10, 1 << 20, 4 << 20, 16 << 20};
  for (std::size_t round = 0; round < number(args[1]); ++round) {
    for (const std::size_t bytes : sizes) {
      for (const bool in_memory : {false, true}) {
        Bench bench;
        bench.in_memory = in_memory;
        bench.frame_bytes = bytes;
        bench.frames = number(args[0]) * 1'000'000 / bytes + 1;
        run_once(bench);
      }
    }
  }
}

}  // namespace
}  // namespace strait::net

int main(int argc, char** argv) {
  try {
    strait::net::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
