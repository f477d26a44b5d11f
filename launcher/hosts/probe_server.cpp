#include "launcher/hosts/probe_server.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <system_error>

#include "launcher/hosts/flow.h"

namespace strait::hosts {
namespace {

using std::chrono::seconds;

constexpr seconds kPreambleLimit{5};  // after that a silent connection is closed
constexpr seconds kServiceLimit{60};  // of one measurement
// The port is open to the network for a few seconds; other clients must not exhaust threads.
constexpr std::size_t kMostConnections = 64;

Instant in(seconds span) { return std::chrono::steady_clock::now() + span; }

void echo_until_closed(int socket) {
  const Instant deadline = in(kServiceLimit);
  std::array<std::byte, kEchoBytes> words{};
  while (true) {
    receive_all(socket, words, deadline);
    send_all(socket, words, deadline);
  }
}

void serve_purpose(int socket, Preamble::Purpose purpose, std::uint32_t host) {
  switch (purpose) {
    case Preamble::Purpose::greet: {
      std::array<std::byte, sizeof host> name{};
      std::memcpy(name.data(), &host, sizeof host);
      return send_all(socket, name, in(kPreambleLimit));
    }
    case Preamble::Purpose::echo:
      return echo_until_closed(socket);
    case Preamble::Purpose::receive:
      return pour(socket, in(kServiceLimit));
    case Preamble::Purpose::send:
      return sample_and_report(socket, in(kServiceLimit));
    case Preamble::Purpose::relay_binds:
    case Preamble::Purpose::relay_dials:
      return;  // for a relay
  }
}

}  // namespace

ProbeServer::ProbeServer(Options options) : options_(std::move(options)) {
  for (const std::string& address : options_.addresses) {
    try {
      BoundPort bound = listen_at(address, options_.ports);
      listeners_.push_back(std::move(bound.socket));
      endpoints_.push_back(bound.endpoint);
    } catch (const PathError& error) {
      troubles_.emplace_back(error.what());
    }
  }
  thread_ = std::thread([this] { accept_all(); });
}

ProbeServer::~ProbeServer() {
  leaving_ = true;
  wake_.raise();
  thread_.join();
}

void ProbeServer::accept_all() {
  std::vector<pollfd> polls(1, {wake_.descriptor(), POLLIN, 0});
  for (const FileDescriptor& listener : listeners_) {
    polls.push_back({listener.number(), POLLIN, 0});
  }
  while (!leaving_) {
    ::poll(polls.data(), polls.size(), -1);
    for (std::size_t i = 1; i < polls.size(); ++i) {
      if (polls[i].revents == 0) continue;
      FileDescriptor caller = accept_connection(polls[i].fd);
      if (caller.open()) admit(std::move(caller));
    }
  }
  for (Connection& caller : connections_) ::shutdown(caller.socket.number(), SHUT_RDWR);
  for (Connection& caller : connections_) caller.thread.join();
}

void ProbeServer::admit(FileDescriptor socket) {
  connections_.remove_if([](Connection& caller) {
    if (!caller.served) return false;
    caller.thread.join();
    return true;
  });
  if (connections_.size() >= kMostConnections) return;
  Connection& caller = connections_.emplace_back();
  caller.socket = std::move(socket);
  try {
    caller.thread = std::thread([this, &caller] {
      serve(caller);
      ::shutdown(caller.socket.number(), SHUT_RDWR);
      caller.served = true;
    });
  } catch (const std::system_error& error) {
    spdlog::warn("a probe is refused, as no thread can be made for it: {}", error.what());
    connections_.pop_back();
  }
}

void ProbeServer::serve(Connection& caller) const {
  try {
    PreambleBytes words{};
    receive_all(caller.socket.number(), words, in(kPreambleLimit));
    const auto preamble = parse_preamble(words);
    if (!preamble || preamble->token != options_.token) return;
    serve_purpose(caller.socket.number(), preamble->purpose, options_.host);
  } catch (const PathError& left) {
    // The other end has finished, or it reports the error itself.
    static_cast<void>(left);
  }
}

}  // namespace strait::hosts
