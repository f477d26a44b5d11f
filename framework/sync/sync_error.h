#pragma once

#include <stdexcept>
#include <string>

namespace strait::sync {

// What other replicas sent makes no sense, or they hold something else: a sentence for the user.
// Links that die throw net::LinkError.
class SyncError : public std::runtime_error {
 public:
  // parted: who takes part is about to change; the round comes to nothing.
  enum class Kind { corrupt, fork, setting, parted };
  SyncError(Kind kind, const std::string& sentence) : std::runtime_error(sentence), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

}  // namespace strait::sync
