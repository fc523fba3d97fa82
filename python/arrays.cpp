// SPDX-License-Identifier: Apache-2.0
//
// Array and NewArray: see arrays.h.
//
//     exporter with a buffer   Py_buffer, held until the call is over
//     any other                __dlpack__(max_version=(1, 1), copy=False), else __dlpack__(); its deleter is called
//                              when the call is over; a capsule that cannot be used stays as it was
//
// Read next: attention.cpp.
#include "arrays.h"

#include <nanobind/ndarray.h>

#include <bit>
#include <cstring>
#include <new>

#include "dlpack.h"

namespace regard::python {
namespace {

[[noreturn]] void raise(PyObject* type, const char* operator_name, const std::string& what) {
  PyErr_SetString(type, (std::string(operator_name) + ": " + what).c_str());
  throw nb::python_error();
}

// The type that a format of the struct module names; bits 0 where it names no number that has a DLPack type. The
// sizes are the machine's own, without prefix or with '@', and the standard ones after '=' and '<'.
NumberType type_of_format(const char* format, Py_ssize_t item_bytes) {
  if (*format == '@' || *format == '=' || (*format == '<' && std::endian::native == std::endian::little)) ++format;
  const auto bits = static_cast<std::uint8_t>(item_bytes * 8);
  if (*format == 'Z' && (format[1] == 'f' || format[1] == 'd') && format[2] == '\0') return {kComplex, bits};
  if (format[0] == '\0' || format[1] != '\0') return {};
  switch (*format) {
    case '?':
      return {kBool, 8};
    case 'e':
    case 'f':
    case 'd':
      return {kFloat, bits};
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
      return {kInt, bits};
    case 'B':
    case 'c':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
      return {kUnsigned, bits};
    default:
      return {};
  }
}

// Whether a class of that name is among the bases: libraries are asked for nothing that they have not loaded already.
bool is_a(PyObject* object, const char* class_name) {
  PyObject* const bases = Py_TYPE(object)->tp_mro;
  for (Py_ssize_t i = 0; bases != nullptr && i < PyTuple_GET_SIZE(bases); ++i) {
    const char* const name = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(bases, i))->tp_name;
    if (std::strcmp(name, class_name) == 0) return true;
  }
  return false;
}

bool is_of_module(PyObject* object, const char* module) {
  nb::object name = nb::getattr(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(object))), "__module__", nb::none());
  if (!nb::isinstance<nb::str>(name)) return false;
  const std::string text = nb::cast<std::string>(name);
  const std::size_t length = std::strlen(module);
  return text.compare(0, length, module) == 0 && (text.size() == length || text[length] == '.');
}

nb::object loaded_module(const char* name) {
  PyObject* const module = PyImport_GetModule(nb::str(name).ptr());
  if (module == nullptr) PyErr_Clear();
  return nb::steal(module);
}

bool is_torch(PyObject* object) {
  const nb::object torch = loaded_module("torch");
  return torch.is_valid() && nb::hasattr(torch, "Tensor") &&
         PyObject_IsInstance(object, torch.attr("Tensor").ptr()) == 1;
}

// Memory of an empty array may be nowhere; an absent view would be taken for an option that was not given.
char nowhere[1];

}  // namespace

[[noreturn]] void refuse(const char* operator_name, const std::string& what) {
  throw std::invalid_argument(std::string(operator_name) + ": " + what);
}

std::string type_text(NumberType type) {
  const std::string bits = std::to_string(type.bits);
  switch (type.code) {
    case kInt:
      return "int" + bits;
    case kUnsigned:
      return "uint" + bits;
    case kFloat:
      return "float" + bits;
    case kBfloat:
      return "bfloat" + bits;
    case kComplex:
      return "complex" + bits;
    case kBool:
      return "bool";
    default:
      return "DLPack code " + std::to_string(type.code) + " of " + bits + " bits";
  }
}

NumberType named_type(const char* operator_name, const char* name, const std::string& text) {
  for (const NumberType type :
       {number_type<float>(), number_type<double>(), number_type<bfloat16>(), number_type<float16>()}) {
    if (text == type_text(type)) return type;
  }
  refuse(operator_name, std::string(name) + " is '" + text + "'; expected float32, float64, bfloat16 or float16");
}

std::string shape_text(const Index* shape, int rank) {
  std::string text = "(";
  for (int i = 0; i < rank; ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + ")";
}

void Array::expect_type(const char* operator_name, const char* name, NumberType type) const {
  if (type_ == type) return;
  std::string what = std::string(name) + " has type " + type_text(type_) + "; expected " + type_text(type);
  if (type == number_type<bool>() && type_.bits == 8) what += " (in NumPy, " + std::string(name) + ".view(bool))";
  refuse(operator_name, what);
}

void Array::expect_rank(const char* operator_name, const char* name, int rank) const {
  if (rank_ == rank) return;
  refuse(operator_name, std::string(name) + " has " + std::to_string(rank_) + (rank_ == 1 ? " axis" : " axes") +
                            " in shape " + shape_text(shape_, rank_) + "; expected " + std::to_string(rank));
}

ElementType Array::element_type(const char* operator_name, const char* name, bool computed_in_double) const {
  if (computed_in_double) {
    expect_type(operator_name, name, number_type<double>());
    return ElementType::float64;
  }
  if (type_ == number_type<float>()) return ElementType::float32;
  if (type_ == number_type<bfloat16>()) return ElementType::bfloat16;
  if (type_ == number_type<float16>()) return ElementType::float16;
  refuse(operator_name,
         std::string(name) + " has type " + type_text(type_) + "; expected float32, bfloat16 or float16, as query has");
}

void Array::borrow(const char* operator_name, const char* name, nb::handle given, Access access) {
  if (!borrow_buffer(operator_name, name, given.ptr()) && !borrow_capsule(operator_name, name, given.ptr()) &&
      !borrow_extended(operator_name, name, given.ptr())) {
    borrow_dlpack(operator_name, name, given.ptr());
  }
  given_ = true;
  if (access == Access::write && (read_only_ || is_of_module(given.ptr(), "jaxlib"))) {
    refuse(operator_name, std::string(name) + " is read-only; expected an array that can be written");
  }
}

bool Array::borrow_buffer(const char* operator_name, const char* name, PyObject* given) {
  if (!PyObject_CheckBuffer(given)) return false;
  if (is_a(given, "MaskedArray")) {
    raise(PyExc_TypeError, operator_name,
          std::string(name) + " is a masked array, whose mask would be lost; give its data, and the mask as `mask`");
  }
  if (PyObject_GetBuffer(given, &buffer_, PyBUF_RECORDS_RO) != 0) {
    // NumPy's types beyond the struct module's, such as bfloat16, have no format: there are other ways.
    if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_ValueError))
      throw nb::python_error();
    PyErr_Clear();
    return false;
  }
  holder_ = Holder::buffer;
  type_ = type_of_format(buffer_.format != nullptr ? buffer_.format : "B", buffer_.itemsize);
  if (type_.bits == 0) {
    refuse(operator_name, std::string(name) + " has elements of format '" + buffer_.format +
                              "', which cannot be read in place; expected numbers in the machine's own order of bytes");
  }
  rank_ = buffer_.ndim;
  if (rank_ > kMostAxes) {
    refuse(operator_name, std::string(name) + " has " + std::to_string(rank_) + " axes; expected at most 8");
  }
  data_ = buffer_.buf;
  read_only_ = buffer_.readonly != 0;
  for (int i = 0; i < rank_; ++i) {
    shape_[i] = buffer_.shape[i];
    if (buffer_.strides[i] % buffer_.itemsize != 0 && shape_[i] > 1) {
      refuse(operator_name, std::string(name) + " has a stride of " + std::to_string(buffer_.strides[i]) +
                                " bytes for elements of " + std::to_string(buffer_.itemsize) +
                                ", which would need a copy; expected a multiple");
    }
    strides_[i] = buffer_.strides[i] / buffer_.itemsize;
  }
  return true;
}

// NumPy arrays of bfloat16 as the package ml_dtypes defines it: the same memory, seen as uint16.
bool Array::borrow_extended(const char* operator_name, const char* name, PyObject* given) {
  if (!is_a(given, "numpy.ndarray")) return false;
  const nb::handle array(given);
  const std::string type = nb::cast<std::string>(nb::str(array.attr("dtype").attr("name")));
  if (type != "bfloat16") {
    raise(PyExc_TypeError, operator_name,
          std::string(name) + " has type " + type + "; expected float32, float64, bfloat16 or float16");
  }
  const nb::object bits = array.attr("view")("uint16");
  if (!borrow_buffer(operator_name, name, bits.ptr())) throw nb::python_error();
  type_ = number_type<bfloat16>();
  return true;
}

void Array::borrow_dlpack(const char* operator_name, const char* name, PyObject* given) {
  const nb::handle producer(given);
  if (!nb::hasattr(producer, "__dlpack__")) {
    raise(PyExc_TypeError, operator_name,
          std::string(name) + " is of type " + Py_TYPE(given)->tp_name +
              "; expected an array with the buffer protocol or __dlpack__ (NumPy, PyTorch, JAX …)");
  }
  nb::object capsule;
  try {
    nb::dict keywords;
    keywords["max_version"] = nb::make_tuple(dlpack::kMajor, 1);
    keywords["copy"] = false;
    capsule = producer.attr("__dlpack__")(**keywords);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  // Producers older than version 1 know no keyword.
  if (!capsule.is_valid()) capsule = producer.attr("__dlpack__")();
  if (!borrow_capsule(operator_name, name, capsule.ptr())) {
    raise(PyExc_BufferError, operator_name, std::string(name) + ": __dlpack__ returned no capsule");
  }
}

bool Array::borrow_capsule(const char* operator_name, const char* name, PyObject* capsule) {
  if (!PyCapsule_CheckExact(capsule)) return false;
  const auto fail = [&](const std::string& what) {
    raise(PyExc_BufferError, operator_name, std::string(name) + ": " + what);
  };
  const bool versioned = PyCapsule_IsValid(capsule, "dltensor_versioned") != 0;
  if (!versioned && PyCapsule_IsValid(capsule, "dltensor") == 0) {
    const char* const called = PyCapsule_GetName(capsule);
    PyErr_Clear();
    fail(std::string("the capsule is called ") + (called != nullptr ? called : "nothing") +
         "; expected dltensor or dltensor_versioned, which nobody has used yet");
  }
  void* const managed = PyCapsule_GetPointer(capsule, versioned ? "dltensor_versioned" : "dltensor");
  if (versioned) {
    const auto& head = *static_cast<const dlpack::ManagedVersioned*>(managed);
    if (head.major != dlpack::kMajor) {
      fail("DLPack version " + std::to_string(head.major) + "." + std::to_string(head.minor) + "; expected 1");
    }
    read_only_ = (head.flags & dlpack::kReadOnly) != 0;
  }
  const dlpack::Tensor& tensor = versioned ? static_cast<const dlpack::ManagedVersioned*>(managed)->tensor
                                           : static_cast<const dlpack::Managed*>(managed)->tensor;
  if (tensor.device_type != dlpack::kCpu && tensor.device_type != dlpack::kCudaHost) {
    fail("its memory is on a device of DLPack type " + std::to_string(tensor.device_type) +
         "; expected the processor's own (in PyTorch, .cpu())");
  }
  if (tensor.type_lanes != 1) fail("elements of " + std::to_string(tensor.type_lanes) + " lanes; expected 1");
  if (tensor.rank < 0 || tensor.rank > kMostAxes || (tensor.rank > 0 && tensor.shape == nullptr)) {
    fail(std::to_string(tensor.rank) + " axes" + (tensor.shape == nullptr ? " without a shape" : "") +
         "; expected at most 8");
  }
  bool empty = false;
  for (int i = 0; i < tensor.rank; ++i) {
    shape_[i] = tensor.shape[i];
    empty = empty || shape_[i] == 0;
  }
  if (tensor.data == nullptr && !empty) fail("no memory for shape " + shape_text(shape_, tensor.rank));
  rank_ = tensor.rank;
  type_ = {tensor.type_code, tensor.type_bits};
  data_ = tensor.data == nullptr ? nowhere : static_cast<char*>(tensor.data) + tensor.byte_offset;
  Index step = 1;
  for (int i = rank_; i-- > 0;) {
    strides_[i] = tensor.strides != nullptr ? tensor.strides[i] : step;
    step = static_cast<Index>(static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(shape_[i]));
  }
  if (PyCapsule_SetName(capsule, versioned ? "used_dltensor_versioned" : "used_dltensor") != 0)
    throw nb::python_error();
  managed_ = managed;
  holder_ = versioned ? Holder::dlpack_versioned : Holder::dlpack;
  return true;
}

void Array::release() {
  switch (holder_) {
    case Holder::nothing:
      break;
    case Holder::buffer:
      PyBuffer_Release(&buffer_);
      break;
    case Holder::dlpack: {
      auto* const managed = static_cast<dlpack::Managed*>(managed_);
      if (managed->deleter != nullptr) managed->deleter(managed);
      break;
    }
    case Holder::dlpack_versioned: {
      auto* const managed = static_cast<dlpack::ManagedVersioned*>(managed_);
      if (managed->deleter != nullptr) managed->deleter(managed);
      break;
    }
  }
  holder_ = Holder::nothing;
}

NewArray::NewArray(const char* operator_name, const char* name, nb::handle like, NumberType type,
                   const std::vector<Index>& shape) {
  const bool torch = is_torch(like.ptr());
  const bool numpy = !torch && is_a(like.ptr(), "numpy.ndarray");
  if (torch || numpy) {
    nb::list extents;
    for (const Index n : shape) extents.append(n);
    const nb::object module = nb::module_::import_(torch ? "torch" : "numpy");
    nb::object dtype;
    if (torch) {
      dtype = module.attr(type_text(type).c_str());
    } else if (type == number_type<bfloat16>()) {
      dtype = nb::module_::import_("ml_dtypes").attr("bfloat16");
    } else {
      dtype = nb::str(type_text(type).c_str());
    }
    nb::dict keywords;
    keywords["dtype"] = dtype;
    object_ = module.attr("empty")(nb::tuple(extents), **keywords);
  } else {
    // The alignment at which JAX takes memory without a copy.
    constexpr std::align_val_t kAlignment{64};
    std::size_t bytes = type.bits / 8;
    std::vector<std::size_t> extents;
    for (const Index n : shape) {
      extents.push_back(static_cast<std::size_t>(n));
      if (__builtin_mul_overflow(bytes, extents.back(), &bytes)) throw std::bad_alloc();
    }
    void* const memory = ::operator new(bytes, kAlignment);
    const nb::capsule owner(memory, [](void* data) noexcept { ::operator delete(data, kAlignment); });
    for_jax_ = is_of_module(like.ptr(), "jaxlib") || is_of_module(like.ptr(), "jax");
    object_ = nb::cast(nb::ndarray<nb::array_api>(memory, extents.size(), extents.data(), owner, nullptr,
                                                  nb::dlpack::dtype{type.code, type.bits, 1}));
  }
  array.borrow(operator_name, name, object_, Access::write);
}

nb::object NewArray::hand_out() {
  if (for_jax_) return nb::module_::import_("jax.dlpack").attr("from_dlpack")(object_);
  return object_;
}

std::vector<Index> index_list(const char* operator_name, const char* name, nb::handle given) {
  std::vector<Index> numbers;
  if (PySequence_Check(given.ptr()) && (PyList_Check(given.ptr()) || PyTuple_Check(given.ptr()))) {
    for (const nb::handle item : nb::borrow<nb::sequence>(given)) {
      const nb::object index = nb::steal(PyNumber_Index(item.ptr()));
      const std::int64_t number = index.is_valid() ? PyLong_AsLongLong(index.ptr()) : -1;
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      numbers.push_back(number);
    }
    return numbers;
  }
  const Array array(operator_name, name, given);
  const auto copy = [&]<class T>(T) {
    const auto view = array.view<const T, 1>(operator_name, name);
    for (Index i = 0; i < view.shape[0]; ++i) {
      T number;
      std::memcpy(&number, view.pointer(i), sizeof number);
      numbers.push_back(number);
    }
  };
  if (array.type() == number_type<std::int32_t>()) {
    copy(std::int32_t{});
  } else {
    copy(std::int64_t{});
  }
  return numbers;
}

template <class T>
std::vector<T> number_list(const char* operator_name, const char* name, nb::handle given) {
  std::vector<T> numbers;
  if (PyList_Check(given.ptr()) || PyTuple_Check(given.ptr())) {
    for (const nb::handle item : nb::borrow<nb::sequence>(given)) {
      const double number = PyFloat_AsDouble(item.ptr());
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      numbers.push_back(static_cast<T>(number));
    }
    return numbers;
  }
  const Array array(operator_name, name, given);
  const auto view = array.view<const T, 1>(operator_name, name);
  for (Index i = 0; i < view.shape[0]; ++i) {
    T number;
    std::memcpy(&number, view.pointer(i), sizeof number);
    numbers.push_back(number);
  }
  return numbers;
}
template std::vector<float> number_list<float>(const char*, const char*, nb::handle);
template std::vector<double> number_list<double>(const char*, const char*, nb::handle);

}  // namespace regard::python
