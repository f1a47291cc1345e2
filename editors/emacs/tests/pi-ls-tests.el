;;; pi-ls-tests.el --- eglot, pi-ls.el and the real server -*- lexical-binding: t -*-

;;; Code:

(require 'ert)
(require 'package)
(package-initialize)
(require 'pi-ls)

(defvar pi-ls-tests--messages nil "What was shown.")
(advice-add 'message :before
            (lambda (format &rest arguments)
              (when format (push (apply #'format format arguments) pi-ls-tests--messages))))

(defun pi-ls-tests--wait (what condition)
  "Wait until CONDITION returns something; WHAT says what for."
  (let ((until (+ (float-time) 30)) value)
    (while (not (setq value (funcall condition)))
      (when (> (float-time) until)
        (error "Timed out: %s; meter %S; messages %S" what (pi-ls-meter) pi-ls-tests--messages))
      (accept-process-output nil 0.05))
    value))

(defun pi-ls-tests--meter (text)
  "Wait until the meter is TEXT."
  (pi-ls-tests--wait text (lambda () (equal (substring-no-properties (pi-ls-meter)) text))))

(defun pi-ls-tests--message (pattern)
  "Wait for a message that matches PATTERN."
  (pi-ls-tests--wait pattern
                     (lambda () (seq-find (lambda (one) (string-match-p pattern one))
                                          pi-ls-tests--messages))))

(defun pi-ls-tests--fragment ()
  "The lines for an init file, as the README has them."
  (with-temp-buffer
    (insert-file-contents (getenv "PI_LS_README"))
    (search-forward "```elisp\n")
    (let ((start (point)))
      (search-forward "\n```")
      (read (format "(progn %s)" (buffer-substring start (match-beginning 0)))))))

(ert-deftest pi-ls-connect-compact-undo-and-branch ()
  (eval (pi-ls-tests--fragment) t)
  (find-file (expand-file-name "notes.txt" (getenv "PI_LS_PROJECT")))
  (text-mode)
  (apply #'eglot--connect (eglot--guess-contact))
  (pi-ls-tests--meter "pi 64% (auto)")
  (should header-line-format)

  (pi-ls-compact "Keep what matters")
  (pi-ls-tests--message "^pi: compacted, 128000 → about [0-9]+ tokens")
  (pi-ls-tests--meter "pi ? (auto)")

  (setq pi-ls-tests--messages nil)
  (pi-ls-compact)
  (pi-ls-tests--message "^pi: .*[Cc]ompact")

  (pi-ls-undo-compaction)
  (pi-ls-tests--message "undone")
  (pi-ls-tests--meter "pi 64% (auto)")

  (pi-ls-abort)
  (pi-ls-tests--message "nothing was running")

  (let ((answers '("a1" "No summary")))
    (cl-letf (((symbol-function 'completing-read)
               (lambda (_prompt choices &rest _)
                 (let ((wanted (pop answers)))
                   (or (seq-find (lambda (choice) (string-match-p (concat "(" wanted ")") choice))
                                 (mapcar (lambda (one) (if (consp one) (car one) one)) choices))
                       wanted)))))
      (pi-ls-branch)
      (pi-ls-tests--message "^pi: moved$")))
  (pi-ls-tests--meter "pi 30% (auto)"))

(provide 'pi-ls-tests)
;;; pi-ls-tests.el ends here
