#pragma once

#include <stdexcept>
#include <string>

namespace strait::net {

// Why a link ended. A link keeps its error as a value and throws it from every later call.
class LinkError : public std::runtime_error {
 public:
  enum class Kind {
    lost,             // the path or the peer is gone
    refused,          // the two ends disagree about what they are; names both values
    aborted,          // one side ended the link on purpose; carries its message
    fenced,           // this process belongs to an older generation
    unauthenticated,  // a peer could not prove its identity
    unusable,         // an address cannot be bound or connected to
  };

  LinkError(Kind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  Kind kind() const { return kind_; }
  // The other kinds are errors of this process or of the protocol.
  bool peer_gone() const { return kind_ == Kind::lost || kind_ == Kind::aborted; }

 private:
  Kind kind_;
};

}  // namespace strait::net
