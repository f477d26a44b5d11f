// What a flood on one link does to bursts on another of the same process. yielding.py calls it:
//   yield_bench receive HOST PORT                      bursts come to PORT, the flood to PORT + 1
//   yield_bench send HOST PORT SECONDS BYTES MS FLOOD  FLOOD: none, foreground, background
// Bursts of BYTES start every MS; 0 bytes: none. Prints one line of JSON: how long each burst took
// until the other program had answered it, and what the flood moved per second meanwhile.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <charconv>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "framework/net/node.h"

namespace strait::net {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr ProcessName kSender{0, 0};
constexpr ProcessName kReceiver{1, 0};
constexpr std::size_t kFloodFrame = std::size_t{256} << 10;
constexpr std::chrono::seconds kWarmUp{2};

NodeOptions plain_node(const ProcessName& name) {
  NodeOptions options;
  options.name = name;
  options.run = *RunId::parse("00112233445566778899aabbccddeeff");
  options.plaintext = true;
  return options;
}

LinkOptions plain_link(const char* name, const ProcessName& peer, Priority priority) {
  LinkOptions options;
  options.name = name;
  options.peer = peer;
  options.window_bytes = std::uint64_t{8} << 20;
  options.priority = priority;
  return options;
}

int number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw std::invalid_argument(fmt::format("'{}' is no number", text));
  }
  return value;
}

// Takes frames until the sender closes the link.
void drain(Link& link, bool answer) {
  try {
    while (true) {
      link.receive();
      if (answer) link.send(Frame(1));
    }
  } catch (const LinkError& end) {
    fmt::print(stderr, "{}\n", end.what());
  }
}

void receive(const std::string& host, std::uint16_t port) {
  Node node(plain_node(kReceiver));
  const auto burst_port = node.listen({host, port});
  const auto flood_port = node.listen({host, static_cast<std::uint16_t>(port + 1)});
  const auto bursts = burst_port->expect(plain_link("bursts", kSender, Priority::foreground));
  const auto flood = flood_port->expect(plain_link("flood", kSender, Priority::background));
  std::thread beside([&] { drain(*flood, false); });
  drain(*bursts, true);
  beside.join();
}

// Keeps a link's window full until it is told to stop.
class Flood {
 public:
  Flood(Link& link, bool on) : link_(link) {
    if (on) {
      thread_ = std::thread([this] {
        for (; !stop_; sent_ += kFloodFrame) link_.send(Frame(kFloodFrame));
      });
    }
  }
  ~Flood() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    link_.flush(Clock::now() + std::chrono::seconds(60));
  }
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;

  double taken() const {  // bytes, by the other program
    return static_cast<double>(sent_) - static_cast<double>(link_.state().window_bytes);
  }

 private:
  Link& link_;
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Milliseconds per burst.
std::vector<double> send_bursts(Link& link, Clock::time_point end, std::size_t bytes,
                                milliseconds every) {
  std::vector<double> took;
  for (auto begin = Clock::now(); begin < end; begin += every) {
    link.receive_until(begin);  // nothing comes
    if (bytes == 0) continue;
    const auto sent_at = Clock::now();
    link.send(Frame(bytes));
    link.receive();
    took.push_back(std::chrono::duration<double, std::milli>(Clock::now() - sent_at).count());
    begin = std::max(begin, Clock::now() - every);  // one that takes longer delays the next
  }
  return took;
}

void send(const std::string& host, int port, std::chrono::seconds seconds, std::size_t bytes,
          milliseconds every, std::string_view flood_kind) {
  Node node(plain_node(kSender));
  const auto bursts = node.connect(fmt::format("tcp://{}:{}", host, port),
                                   plain_link("bursts", kReceiver, Priority::foreground));
  const Priority priority =
      flood_kind == "foreground" ? Priority::foreground : Priority::background;
  const auto flood_link = node.connect(fmt::format("tcp://{}:{}", host, port + 1),
                                       plain_link("flood", kReceiver, priority));
  const Flood flood(*flood_link, flood_kind != "none");
  send_bursts(*bursts, Clock::now() + kWarmUp, bytes, every);
  const double before = flood.taken();
  const auto began = Clock::now();
  const std::vector<double> took = send_bursts(*bursts, began + seconds, bytes, every);
  const std::chrono::duration<double> passed = Clock::now() - began;
  const double moved = flood.taken() - before;
  fmt::print("{{\"ms\": [{:.2f}], \"seconds\": {:.3f}, \"flood\": {:.0f}}}\n",
             fmt::join(took, ", "), passed.count(), moved / passed.count());
}

int call(const std::vector<std::string>& words) {
  if (words.size() == 3 && words[0] == "receive") {
    receive(words[1], static_cast<std::uint16_t>(number(words[2])));
    return 0;
  }
  if (words.size() == 7 && words[0] == "send") {
    send(words[1], number(words[2]), std::chrono::seconds(number(words[3])),
         static_cast<std::size_t>(number(words[4])), milliseconds(number(words[5])), words[6]);
    return 0;
  }
  fmt::print(stderr, "usage: see the head of yield_bench.cpp\n");
  return 2;
}

}  // namespace
}  // namespace strait::net

int main(int count, char** words) {
  try {
    return strait::net::call({words + 1, words + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
