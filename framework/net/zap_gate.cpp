#include "framework/net/zap_gate.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <utility>
#include <vector>
#include <zmq_addon.hpp>

namespace strait::net {
namespace {

// The parts of a request, in the order of the RFC.
constexpr std::size_t kVersionPart = 0;
constexpr std::size_t kRequestPart = 1;
constexpr std::size_t kDomainPart = 2;
constexpr std::size_t kAddressPart = 3;
constexpr std::size_t kMechanismPart = 5;
constexpr std::size_t kCredentialPart = 6;
constexpr std::size_t kPublicKeyBytes = 32;

std::string z85_of(const zmq::message_t& key) {
  std::array<char, 41> text{};
  zmq_z85_encode(text.data(), static_cast<const std::uint8_t*>(key.data()), key.size());
  return text.data();
}

}  // namespace

ZapGate::ZapGate(zmq::context_t& context, std::string domain,
                 std::function<void(const std::string&)> on_event)
    : domain_(std::move(domain)),
      on_event_(std::move(on_event)),
      requests_(context, zmq::socket_type::rep) {
  requests_.set(zmq::sockopt::linger, 0);
  requests_.bind("inproc://zeromq.zap.01");
}

void ZapGate::allow(const std::string& public_key, const ProcessName& name) {
  Allowed& allowed = allowed_[public_key];
  allowed.name = name;
  ++allowed.times;
}

void ZapGate::forget(const std::string& public_key) {
  const auto found = allowed_.find(public_key);
  if (found != allowed_.end() && --found->second.times == 0) allowed_.erase(found);
}

void ZapGate::turn() {
  for (std::vector<zmq::message_t> request;
       zmq::recv_multipart(requests_, std::back_inserter(request), zmq::recv_flags::dontwait);
       request.clear()) {
    if (request.size() <= kMechanismPart) {
      // libzmq writes these requests itself. One without its parts cannot be answered properly, but
      // a REP socket that owes an answer would never receive again.
      requests_.send(zmq::message_t(), zmq::send_flags::none);
      continue;
    }
    const bool curve = request.size() > kCredentialPart &&
                       request[kMechanismPart].to_string_view() == "CURVE" &&
                       request[kCredentialPart].size() == kPublicKeyBytes;
    const std::string key = curve ? z85_of(request[kCredentialPart]) : std::string();
    const auto found = allowed_.find(key);
    const bool enters = found != allowed_.end() && request[kDomainPart].to_string_view() == domain_;
    // Strangers must not fill the log: the 1st, 2nd, 4th, 8th ... refusal is reported.
    if (!enters && std::has_single_bit(++refused_)) {
      on_event_(fmt::format("refused: a process at {} with an unknown key ({} so far)",
                            request[kAddressPart].to_string(), refused_));
    }
    const std::string name = enters ? found->second.name.text() : "";
    std::vector<zmq::message_t> reply;
    reply.push_back(std::move(request[kVersionPart]));
    reply.push_back(std::move(request[kRequestPart]));
    reply.emplace_back(std::string(enters ? "200" : "400"));
    reply.emplace_back(std::string(enters ? "OK" : "unknown key"));
    reply.emplace_back(name);
    reply.emplace_back();
    zmq::send_multipart(requests_, reply);
  }
}

}  // namespace strait::net
