#include "launcher/hosts/path_measure.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <limits>
#include <thread>

#include "launcher/hosts/flow.h"
#include "launcher/hosts/tcp_socket.h"

namespace strait::hosts {
namespace {

using Clock = std::chrono::steady_clock;

FileDescriptor enter(const net::Endpoint& place, const Preamble& preamble, Instant deadline) {
  FileDescriptor socket = dial(place, deadline);
  send_all(socket.number(), to_bytes(preamble), deadline);
  return socket;
}

double path_seconds(Instant from, Instant to) {
  return std::chrono::duration<double>(to - from).count();
}

DialResult try_one(const DialTarget& target, const std::string& token, Instant deadline) {
  DialResult result;
  try {
    const Instant start = Clock::now();
    const FileDescriptor socket = dial(target.place, deadline);
    result.seconds = path_seconds(start, Clock::now());
    send_all(socket.number(), to_bytes({token, Preamble::Purpose::greet}), deadline);
    std::uint32_t host = 0;
    std::array<std::byte, sizeof host> name{};
    receive_all(socket.number(), name, deadline);
    std::memcpy(&host, name.data(), sizeof host);
    if (host != target.host)
      result.trouble = target.place.host_and_port() + ": another host answers there";
  } catch (const PathError& error) {
    result.trouble = error.what();
  }
  return result;
}

}  // namespace

std::vector<DialResult> dial_all(const std::vector<DialTarget>& targets, const std::string& token,
                                 double limit_seconds) {
  const Instant deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                              std::chrono::duration<double>(limit_seconds));
  std::vector<DialResult> results(targets.size());
  std::vector<std::jthread> threads;  // joined also where the next one cannot be made
  for (std::size_t i = 0; i < targets.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = try_one(targets[i], token, deadline); });
  }
  threads.clear();
  return results;
}

double round_trip(const net::Endpoint& place, const std::string& token, int count,
                  Instant deadline) {
  const FileDescriptor socket = enter(place, {token, Preamble::Purpose::echo}, deadline);
  std::array<std::byte, kEchoBytes> words{};
  double shortest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < count; ++i) {
    const Instant start = Clock::now();
    send_all(socket.number(), words, deadline);
    receive_all(socket.number(), words, deadline);
    shortest = std::min(shortest, path_seconds(start, Clock::now()));
  }
  return shortest;
}

double flow_rate(const net::Endpoint& place, const std::string& token, FlowDirection direction,
                 int connections, double seconds, Instant deadline) {
  const bool pulls = direction == FlowDirection::from_there;
  const Preamble preamble{token, pulls ? Preamble::Purpose::receive : Preamble::Purpose::send};
  std::vector<FileDescriptor> sockets;
  std::vector<int> numbers;
  for (int i = 0; i < connections; ++i) {
    sockets.push_back(enter(place, preamble, deadline));
    numbers.push_back(sockets.back().number());
  }
  if (pulls) return flow_rate_of_samples(count(numbers, seconds, deadline));
  std::vector<std::vector<FlowSample>> flows(sockets.size());
  std::vector<std::exception_ptr> errors(sockets.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        flows[i] = send_and_sample(numbers[i], seconds, deadline);
      } catch (const PathError& error) {
        errors[i] = std::make_exception_ptr(error);
      }
    });
  }
  threads.clear();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return flow_rate_of_samples(merge_flows(flows));
}

}  // namespace strait::hosts
