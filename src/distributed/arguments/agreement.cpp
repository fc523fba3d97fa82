// SPDX-License-Identifier: Apache-2.0
//
// The arguments of a rank are one message: its size, then the numbers, the error and the fields, each text with its
// size. All ranks compare all messages with that of rank 0, so all reach the same conclusion. Read next: agreement.h.
#include "agreement.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "distributed/messages/messages.h"
#include "regard/error.h"

namespace regard::inline v0::internal {
namespace {

void write_number(std::int64_t number, std::string& to) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}
void write_text(std::string_view text, std::string& to) {
  write_number(static_cast<std::int64_t>(text.size()), to);
  to += text;
}

[[noreturn]] void reject_version(Index rank) {
  throw RankError(rank, "rank " + std::to_string(rank) + " uses a different version of this library");
}

class Reader {
 public:
  Reader(const std::string& bytes, Index rank) : bytes_(bytes), rank_(rank) {}
  std::int64_t number() {
    std::int64_t number = 0;
    std::memcpy(&number, take(sizeof number), sizeof number);
    return number;
  }
  std::string text() {
    const std::int64_t size = number();
    return {take(static_cast<std::size_t>(size)), static_cast<std::size_t>(size)};
  }
  std::int64_t count(std::size_t bytes_each) {
    const std::int64_t count = number();
    if (count < 0 || static_cast<std::size_t>(count) > (bytes_.size() - at_) / bytes_each) reject_version(rank_);
    return count;
  }

 private:
  const char* take(std::size_t size) {
    if (size > bytes_.size() - at_) reject_version(rank_);
    at_ += size;
    return bytes_.data() + (at_ - size);
  }
  const std::string& bytes_;
  std::size_t at_ = 0;
  Index rank_;
};

struct Arguments {
  std::vector<Index> numbers;
  std::string mistake;
  std::vector<std::pair<std::string, std::string>> fields;
};

Arguments read(const std::string& bytes, Index rank) {
  Reader reader(bytes, rank);
  Arguments arguments;
  for (std::int64_t n = reader.count(sizeof(Index)); n > 0; --n) arguments.numbers.push_back(reader.number());
  arguments.mistake = reader.text();
  for (std::int64_t n = reader.count(2 * sizeof(Index)); n > 0; --n) {
    std::string name = reader.text();
    arguments.fields.emplace_back(std::move(name), reader.text());
  }
  return arguments;
}

// Sends a message to all ranks and receives one from each, of the given sizes.
std::vector<std::string> all_messages(const std::string& own, const std::vector<std::size_t>& sizes, Ranks& ranks,
                                      const std::stop_token& stop) {
  Messages& messages = ranks.messages();
  const auto keep = std::make_shared<std::vector<std::string>>(sizes.size());
  std::vector<Messages::Ticket> tickets;
  (*keep)[static_cast<std::size_t>(ranks.rank())] = own;
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    const auto rank = static_cast<Index>(r);
    if (rank == ranks.rank()) continue;
    (*keep)[r].resize(sizes[r]);
    tickets.push_back(messages.receive(rank, std::as_writable_bytes(std::span((*keep)[r])), keep));
    tickets.push_back(
        messages.send(rank, std::as_bytes(std::span((*keep)[static_cast<std::size_t>(ranks.rank())])), keep));
  }
  messages.wait(tickets, stop);
  return std::move(*keep);
}

}  // namespace

void Agreement::exchange(Ranks& ranks, const std::stop_token& stop) {
  const auto num_ranks = static_cast<std::size_t>(ranks.num_ranks());
  std::string own;
  write_number(static_cast<std::int64_t>(numbers_.size()), own);
  for (const Index number : numbers_) write_number(number, own);
  write_text(mistake_, own);
  write_number(static_cast<std::int64_t>(fields_.size()), own);
  for (const auto& [name, value] : fields_) {
    write_text(name, own);
    write_text(value, own);
  }
  std::string own_size;
  write_number(static_cast<std::int64_t>(own.size()), own_size);
  std::vector<std::size_t> sizes(num_ranks, own_size.size());
  const std::vector<std::string> all_sizes = all_messages(own_size, sizes, ranks, stop);
  constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;
  for (std::size_t r = 0; r < num_ranks; ++r) {
    const std::int64_t size = Reader(all_sizes[r], static_cast<Index>(r)).number();
    if (size < 0 || size > kMaxSize) reject_version(static_cast<Index>(r));
    sizes[r] = static_cast<std::size_t>(size);
  }
  const std::vector<std::string> all = all_messages(own, sizes, ranks, stop);

  std::vector<Arguments> arguments;
  for (std::size_t r = 0; r < num_ranks; ++r) arguments.push_back(read(all[r], static_cast<Index>(r)));
  const Arguments& first = arguments.front();
  const auto rank_text = [](std::size_t r) { return "rank " + std::to_string(r); };
  // A rank that calls a different function is named first, because its other values have a different meaning.
  for (std::size_t r = 1; r < num_ranks; ++r) {
    if (arguments[r].fields.front().second != first.fields.front().second)
      throw InvalidArgument(rank_text(r) + " calls " + arguments[r].fields.front().second + "; expected " +
                            first.fields.front().second + ", which rank 0 calls");
  }
  for (std::size_t r = 0; r < num_ranks; ++r) {
    if (!arguments[r].mistake.empty())
      throw InvalidArgument((function_.empty() ? "" : function_ + ": ") + rank_text(r) + ": " + arguments[r].mistake);
  }
  for (std::size_t i = 0; i < first.fields.size(); ++i) {
    for (std::size_t r = 1; r < num_ranks; ++r) {
      const auto& [name, expected] = first.fields[i];
      if (i >= arguments[r].fields.size() || arguments[r].fields[i].first != name)
        reject_version(static_cast<Index>(r));
      if (arguments[r].fields[i].second != expected)
        throw InvalidArgument(function_ + ": " + rank_text(r) + ": " + name + " is " + arguments[r].fields[i].second +
                              "; expected " + expected + ", as on rank 0");
    }
  }
  all_numbers_.clear();
  for (Arguments& of : arguments) all_numbers_.push_back(std::move(of.numbers));
}

std::vector<Index> Agreement::numbers(std::size_t place) const {
  std::vector<Index> result;
  for (const std::vector<Index>& numbers : all_numbers_) result.push_back(numbers[place]);
  return result;
}

}  // namespace regard::inline v0::internal
