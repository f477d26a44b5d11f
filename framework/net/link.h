#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "framework/net/frame_memory.h"
#include "framework/net/link_error.h"

namespace strait::net {

// What a stall report needs: which process waits for what, and since when.
struct LinkState {
  std::string name;                    // "boundary 0>1", as both ends call it
  std::string peer;                    // "stage 1.0 (127.0.0.1:40123)"
  bool connected = false;              // a hello was agreed on, and the path is up
  std::uint64_t sent_bytes = 0;        // on the wire, with framing and repeats
  std::uint64_t received_bytes = 0;    // the same
  std::uint64_t window_bytes = 0;      // sent, and not yet taken by the peer
  std::uint64_t awaited_bytes = 0;     // size of the frame that is arriving; 0: none
  std::uint64_t awaited_received = 0;  // bytes of that frame that have arrived
  std::uint64_t resent_fragments = 0;
  std::uint64_t rejected_fragments = 0;  // wrong check, wrong generation, or repeated
  std::uint64_t reconnects = 0;
  bool in_memory = false;       // fragments to the peer go through shared memory
  std::string memory_problem;   // why memory cannot be shared, though it was asked for
  double bytes_per_second = 0;  // measured speed of the path to the peer; 0: unknown
  std::chrono::steady_clock::time_point last_heard{};  // anything, heartbeats too
  std::chrono::steady_clock::time_point last_data{};   // a byte of a frame
};

// One end of a reliable, ordered channel, bounded in bytes, between two named processes. A frame
// that send() took arrives exactly once and in order, or the link has failed.
//
// Threads: one thread may send while another receives; state() and abort() may be called by any.
// A failed link answers every later call with the same error.
class Link {
 public:
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;

  // Waits only for room in the window. A frame larger than the window passes alone.
  void send(Frame frame) { send_until(frame, std::chrono::steady_clock::time_point::max()); }

  // Like send(), but gives up at the deadline. False: the frame still belongs to the caller. One
  // thread that both sends and receives can so make room for a peer that does the same.
  virtual bool send_until(Frame& frame, std::chrono::steady_clock::time_point deadline) = 0;

  // Waits for the next frame. Frames that arrived before the link died are still delivered.
  virtual Frame receive() = 0;

  // Like receive(), but gives up at the deadline: nothing has arrived, and nothing is wrong.
  virtual std::optional<Frame> receive_until(std::chrono::steady_clock::time_point deadline) = 0;

  // Waits until everything sent has reached the peer's memory, or the deadline passes (false).
  virtual bool flush(std::chrono::steady_clock::time_point deadline) = 0;

  // Ends the link on both sides with this cause. Later causes are ignored.
  virtual void abort(const LinkError& cause) = 0;

  virtual LinkState state() const = 0;

  // The link that carries this link's frames, if this one wraps another. For reports of waits.
  virtual const Link* underlying() const { return this; }
};

// A wait, in words that fit the report's sentence.
struct Wait {
  std::string process;  // "stage 2.0"
  std::string what;     // "forward of micro-batch 7"
  std::chrono::steady_clock::time_point since;
};

// "stage 2.0 waits 41 s for forward of micro-batch 7 from stage 1.0 (host b): 3.1 of 16.8 MB
// received, last byte 38 s ago". Pure: the clock is an argument.
std::string stall_report(const Wait& wait, const LinkState& link,
                         std::chrono::steady_clock::time_point now);

}  // namespace strait::net
