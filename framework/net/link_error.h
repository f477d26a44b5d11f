#pragma once

#include <stdexcept>
#include <string>

namespace strait::net {

// Why a link ended. A value as well as an exception: links keep it and throw it from every later
// call.
class LinkError : public std::runtime_error {
 public:
  enum class Kind {
    lost,             // the path or the peer is gone
    refused,          // the two ends do not agree on what they are; names both values
    aborted,          // one side ended the link on purpose; carries its words
    fenced,           // this process belongs to an older generation
    unauthenticated,  // a peer could not prove its identity
    unusable,         // an address cannot be bound or connected to
  };

  LinkError(Kind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  Kind kind() const { return kind_; }
  // Others are errors of this process or of the protocol.
  bool peer_gone() const { return kind_ == Kind::lost || kind_ == Kind::aborted; }

 private:
  Kind kind_;
};

}  // namespace strait::net
