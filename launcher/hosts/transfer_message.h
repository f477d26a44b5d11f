#pragma once

#include <span>
#include <variant>

#include "framework/net/frame_memory.h"
#include "launcher/base/errors.h"

// The messages between any two transfer agents, as values and as frames. README.md has the byte
// format.
namespace strait::transfer::message {

struct Get {
  std::string id;
  std::uint32_t chunk = 0;
};
struct Chunk {
  std::string id;
  std::uint32_t chunk = 0;
  std::vector<std::byte> content;  // chunk_frame writes it without a copy
};
// The chunk is not here.
struct Missing {
  std::string id;
  std::uint32_t chunk = 0;
};
// A request is delayed by the sender's upload limit, or because the sender is still fetching the
// chunk and makes progress.
struct Wait {};

// The index is the kind on the wire.
using Message = std::variant<Get, Chunk, Missing, Wait>;

net::Frame format(const Message& message);
// A frame of Chunk. The caller writes the chunk's bytes to `content`, which points into the frame.
net::Frame chunk_frame(const std::string& id, std::uint32_t chunk, std::size_t bytes,
                       std::span<std::byte>& content);

// Checks limits before it allocates memory. base::MessageError names what is wrong. Pure.
Message parse_message(std::span<const std::byte> frame);

}  // namespace strait::transfer::message
