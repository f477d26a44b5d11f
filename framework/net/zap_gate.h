#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <zmq.hpp>

#include "framework/net/process_name.h"

namespace strait::net {

// Access control: the ZeroMQ authentication handler (RFC 27) of one context, with a map from
// allowed public keys to process names. Every message of an accepted peer carries that name as its
// user id. Lives on the net thread, and must exist before the first socket binds.
class ZapGate {
 public:
  ZapGate(zmq::context_t& context, std::string domain,
          std::function<void(const std::string&)> on_event);

  void allow(const std::string& public_key, const ProcessName& name);
  void forget(const std::string& public_key);  // once per allow()

  void turn();  // answers pending requests
  zmq::socket_t& requests() { return requests_; }

 private:
  struct Allowed {
    ProcessName name;
    std::uint32_t times = 0;
  };

  const std::string domain_;
  const std::function<void(const std::string&)> on_event_;
  zmq::socket_t requests_;
  std::map<std::string, Allowed> allowed_;  // by public key in Z85
  std::uint64_t refused_ = 0;
};

}  // namespace strait::net
