// How fast is a link against the wire below it? GB/s of 4 MiB frames over loopback, one way: a
// memory link, a plain and a CURVE link, beside a bare TCP connection of the same run as the limit.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "tests/framework/net/link_pair.h"

namespace strait::net {
namespace {

constexpr std::size_t kFrameBytes = std::size_t{4} << 20;
constexpr int kFrames = 256;

double gigabytes_per_second(std::chrono::steady_clock::time_point begin) {
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(kFrameBytes) * kFrames / took.count() / 1e9;
}

double link_rate(const LinkPair& pair) {
  pair.left->send(Frame(kFrameBytes));  // the hello is not what is measured
  pair.right->receive();
  const auto begin = std::chrono::steady_clock::now();
  std::thread sender([&] {
    for (int i = 0; i < kFrames; ++i) pair.left->send(Frame(kFrameBytes));
  });
  for (int i = 0; i < kFrames; ++i) pair.right->receive();
  const double rate = gigabytes_per_second(begin);
  sender.join();
  return rate;
}

double tcp_rate() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener, generic, size) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, generic, &size) != 0) {
    return 0;
  }
  std::thread sender([&] {
    const int out = socket(AF_INET, SOCK_STREAM, 0);
    const std::vector<char> frame(kFrameBytes);
    if (connect(out, generic, size) == 0) {
      for (int i = 0; i < kFrames; ++i) {
        for (std::size_t done = 0; done < frame.size();) {
          const ssize_t sent = ::send(out, frame.data() + done, frame.size() - done, MSG_NOSIGNAL);
          if (sent <= 0) break;
          done += static_cast<std::size_t>(sent);
        }
      }
    }
    close(out);
  });
  const int in = accept(listener, nullptr, nullptr);
  std::vector<char> buffer(std::size_t{1} << 20);
  const auto begin = std::chrono::steady_clock::now();
  while (recv(in, buffer.data(), buffer.size(), 0) > 0) {
  }
  const double rate = gigabytes_per_second(begin);
  sender.join();
  close(in);
  close(listener);
  return rate;
}

int print_table() {
  EndSetup setup;
  setup.window_bytes = std::uint64_t{64} << 20;
  setup.chunk_bytes = std::uint64_t{1} << 20;
  const double tcp = tcp_rate();
  fmt::print("{:<14}{:>8}{:>12}\n", "carrier", "GB/s", "of bare TCP");
  const auto line = [&](const char* name, double rate) {
    fmt::print("{:<14}{:>8.2f}{:>12.2f}\n", name, rate, rate / tcp);
  };
  line("bare TCP", tcp);
  line("memory", link_rate(*make_memory_pair(setup, setup)));
  line("ZeroMQ plain", link_rate(*make_plain_pair(setup, setup)));
  line("ZeroMQ CURVE", link_rate(*make_curve_pair(setup, setup)));
  return 0;
}

}  // namespace
}  // namespace strait::net

int main() { return strait::net::print_table(); }
