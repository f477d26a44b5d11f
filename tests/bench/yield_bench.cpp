// What a flood on one link does to bursts on another of the same process. yielding.py calls it:
//   yield_bench receive HOST PORT RETURN
//   yield_bench send HOST PORT SECONDS BYTES MS FLOOD LINKS
// Bursts go to PORT, floods over one or two links to the next two, and a foreground flood comes
// back from the one after them, unless RETURN is none. FLOOD: none, foreground, background. Bursts
// of BYTES start every MS; 0 bytes: none. Prints one line of JSON: how long each burst took until
// the other program had answered it, and what each flood moved per second meanwhile.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <charconv>
#include <thread>

#include "framework/net/node.h"

namespace strait::net {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr ProcessName kSender{0, 0};
constexpr ProcessName kReceiver{1, 0};
constexpr std::size_t kFloodFrame = std::size_t{256} << 10;
constexpr std::chrono::seconds kWarmUp{2};
constexpr std::array<const char*, 4> kLinks = {"bursts", "flood", "second flood", "return"};

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

// Calls again and again until the sender closes the link.
template <typename Call>
void until_closed(Call call) {
  try {
    while (true) call();
  } catch (const LinkError& end) {
    fmt::print(stderr, "{}\n", end.what());
  }
}

void receive(const std::string& host, std::uint16_t port, bool floods_back) {
  Node node(plain_node(kReceiver));
  std::vector<std::unique_ptr<Listener>> listeners;
  std::vector<std::unique_ptr<Link>> links;
  for (std::size_t i = 0; i < kLinks.size(); ++i) {
    listeners.push_back(node.listen({host, static_cast<std::uint16_t>(port + i)}));
    links.push_back(listeners[i]->expect(plain_link(kLinks[i], kSender, Priority::foreground)));
  }
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < kLinks.size(); ++i) {
    threads.emplace_back([&link = *links[i]] { until_closed([&] { link.receive(); }); });
  }
  if (floods_back) {
    Link& back = *links.back();
    threads.emplace_back([&] { until_closed([&] { back.send(Frame(kFloodFrame)); }); });
  }
  until_closed([&bursts = *links[0]] {
    bursts.receive();
    bursts.send(Frame(1));
  });
  for (std::thread& thread : threads) thread.join();
}

// Keeps a link's window full until it is told to stop.
class Flood {
 public:
  explicit Flood(Link& link) : link_(link) {
    thread_ = std::thread([this] {
      for (; !stop_; sent_ += kFloodFrame) link_.send(Frame(kFloodFrame));
    });
  }
  ~Flood() {
    stop_ = true;
    thread_.join();
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

struct Load {
  std::size_t burst_bytes = 0;
  milliseconds every{0};
  std::string flood;  // none, foreground, background
  int flood_links = 1;
};

void send(const std::string& host, int port, std::chrono::seconds seconds, const Load& load) {
  Node node(plain_node(kSender));
  const Priority priority =
      load.flood == "background" ? Priority::background : Priority::foreground;
  std::vector<std::unique_ptr<Link>> links;
  for (std::size_t i = 0; i < kLinks.size(); ++i) {
    const bool floods = i == 1 || i == 2;
    links.push_back(
        node.connect(fmt::format("tcp://{}:{}", host, port + static_cast<int>(i)),
                     plain_link(kLinks[i], kReceiver, floods ? priority : Priority::foreground)));
  }
  Link& bursts = *links[0];
  std::thread returned([&link = *links[3]] { until_closed([&] { link.receive(); }); });
  std::vector<double> took;
  std::vector<double> moved;
  std::chrono::duration<double> passed{0};
  {
    std::vector<std::unique_ptr<Flood>> floods;
    for (int i = 0; i < load.flood_links && load.flood != "none"; ++i) {
      floods.push_back(std::make_unique<Flood>(*links[1 + static_cast<std::size_t>(i)]));
    }
    send_bursts(bursts, Clock::now() + kWarmUp, load.burst_bytes, load.every);
    for (const auto& flood : floods) moved.push_back(-flood->taken());
    const auto began = Clock::now();
    took = send_bursts(bursts, began + seconds, load.burst_bytes, load.every);
    passed = Clock::now() - began;
    for (std::size_t i = 0; i < floods.size(); ++i) {
      moved[i] = (moved[i] + floods[i]->taken()) / passed.count();
    }
  }
  links[3]->abort(LinkError(LinkError::Kind::aborted, "the bench is over"));
  returned.join();
  fmt::print("{{\"ms\": [{:.2f}], \"seconds\": {:.3f}, \"floods\": [{:.0f}]}}\n",
             fmt::join(took, ", "), passed.count(), fmt::join(moved, ", "));
}

int call(const std::vector<std::string>& words) {
  if (words.size() == 4 && words[0] == "receive") {
    receive(words[1], static_cast<std::uint16_t>(number(words[2])), words[3] != "none");
    return 0;
  }
  if (words.size() == 8 && words[0] == "send") {
    send(words[1], number(words[2]), std::chrono::seconds(number(words[3])),
         {static_cast<std::size_t>(number(words[4])), milliseconds(number(words[5])), words[6],
          number(words[7])});
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
