#pragma once

#include <stdexcept>

// Failures of the world, as opposed to bugs. A room derives its own error from one of these kinds.
// Programs turn the kind into an exit code without knowing the room.
namespace strait {

// A file, a setting or a plugin's answer that cannot be used. what() is the sentence for the user:
// what, where, what was expected, what to do.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Bytes from a peer that no correct peer sends.
class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace strait
