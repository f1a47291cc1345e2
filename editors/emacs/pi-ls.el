;;; pi-ls.el --- pi sessions over eglot: context meter, compaction, branches -*- lexical-binding: t -*-

;; Package-Requires: ((emacs "28.1") (eglot "1.9"))

;;; Commentary:

;; Eglot connects to the server; this adds what eglot does not know: the
;; meter in the header line and the commands.
;;
;;   (require 'pi-ls)
;;   (add-to-list 'eglot-server-programs '(text-mode . ("pi-ls")))
;;   (add-hook 'eglot-managed-mode-hook #'pi-ls-meter-mode)
;;
;; Eglot manages one server in a buffer: give this one to a mode that has
;; no other (text, Markdown, Org), and keep such a buffer in the project.

;;; Code:

(require 'eglot)
(require 'jsonrpc)
(require 'subr-x)

(defgroup pi-ls nil "Sessions of the pi agent." :group 'tools)

(defcustom pi-ls-warning-percent 70
  "From here on the meter has the face `warning'."
  :type 'number)

(defcustom pi-ls-error-percent 90
  "From here on the meter has the face `error'."
  :type 'number)

(defconst pi-ls--nothing (make-hash-table :size 1)
  "JSON's empty object.")

(defvar pi-ls--usage (make-hash-table :test #'eq :weakness 'key)
  "What is known of the context, by server.")

(defvar pi-ls--busy (make-hash-table :test #'eq :weakness 'key)
  "What is going on, by server.")

(defun pi-ls--know (table server value)
  "Put VALUE for SERVER into TABLE and have header lines drawn again."
  (puthash server value table)
  (force-mode-line-update t))

;;;; What the server tells

(cl-defmethod eglot-handle-notification
  (server (_method (eql 'pi/context_usage)) &rest usage &key &allow-other-keys)
  "The context is as full as USAGE says."
  (pi-ls--know pi-ls--usage server usage))

(cl-defmethod eglot-handle-notification
  (server (_method (eql 'pi/compaction_start)) &key &allow-other-keys)
  "A compaction has begun."
  (pi-ls--know pi-ls--busy server "compacting"))

(cl-defmethod eglot-handle-notification
  (server (_method (eql 'pi/compaction_end)) &key &allow-other-keys)
  "A compaction has ended, however it went."
  (pi-ls--know pi-ls--busy server nil))

;;;; The meter

(defun pi-ls--figure (usage)
  "How full the context is, by USAGE; nil without a usable window."
  (when (plist-get usage :contextWindow)
    (let ((percent (plist-get usage :percent)))
      (if (not (numberp percent))
          "?"
        (format "%s%d%%"
                (if (equal (plist-get usage :source) "measured") "" "~")
                (round percent))))))

(defun pi-ls--face (usage)
  "The face for USAGE."
  (let ((percent (plist-get usage :percent)))
    (cond ((not (numberp percent)) 'default)
          ((>= percent pi-ls-error-percent) 'error)
          ((>= percent pi-ls-warning-percent) 'warning)
          (t 'default))))

(defun pi-ls--true (value)
  "Whether VALUE is JSON's true."
  (and value (not (eq value :json-false))))

(defun pi-ls-meter ()
  "The meter of the current buffer's session, a string."
  (let* ((server (eglot-current-server))
         (usage (and server (gethash server pi-ls--usage)))
         (busy (and server (gethash server pi-ls--busy)))
         (figure (pi-ls--figure usage)))
    (cond (busy (concat "pi " busy))
          (figure
           (concat (propertize (concat "pi " figure) 'face (pi-ls--face usage))
                   (cond ((not (pi-ls--true (plist-get usage :autoCompactionEnabled))) "")
                         ((pi-ls--true (plist-get usage :autoCompactionPaused)) " (auto paused)")
                         (t " (auto)"))))
          (t ""))))

;;;###autoload
(define-minor-mode pi-ls-meter-mode
  "Show how full the context of the pi session is, in the header line."
  :lighter nil
  (setq header-line-format
        (and pi-ls-meter-mode
             '((:eval (string-replace "%" "%%" (pi-ls-meter)))))))

;;;; Commands

(defun pi-ls--server ()
  "The server of the current buffer, or an error that says what to do."
  (or (eglot-current-server)
      (user-error "No pi-ls here: M-x eglot first")))

(defun pi-ls--command (server name arguments on-result)
  "Have SERVER run NAME with ARGUMENTS (a plist); call ON-RESULT with its answer."
  (jsonrpc-async-request
   server :workspace/executeCommand
   (list :command name :arguments (vector (or arguments pi-ls--nothing)))
   :timeout nil
   :success-fn on-result
   :error-fn (jsonrpc-lambda (&key message &allow-other-keys)
               (message "pi: %s" message))))

;;;###autoload
(defun pi-ls-compact (&optional instructions)
  "Compact the session now; with a prefix argument ask for INSTRUCTIONS."
  (interactive (list (and current-prefix-arg (read-string "What matters: "))))
  (pi-ls--command
   (pi-ls--server) "pi.compact" (and instructions (list :customInstructions instructions))
   (jsonrpc-lambda (&key tokensBefore estimatedTokensAfter &allow-other-keys)
     (message "pi: compacted, %d → about %d tokens" tokensBefore estimatedTokensAfter))))

;;;###autoload
(defun pi-ls-abort ()
  "Stop whatever runs in the session."
  (interactive)
  (pi-ls--command
   (pi-ls--server) "pi.abort" nil
   (jsonrpc-lambda (&key aborted &allow-other-keys)
     (message (if (pi-ls--true aborted) "pi: stopped" "pi: nothing was running")))))

;;;###autoload
(defun pi-ls-undo-compaction ()
  "Take the last compaction back."
  (interactive)
  (pi-ls--command (pi-ls--server) "pi.undoCompaction" nil
                  (lambda (_result) (message "pi: the compaction is undone"))))

(defun pi-ls--places (nodes)
  "An alist from what a person reads to the ids of NODES."
  (mapcar (lambda (node)
            (cons (format "%s %s  (%s)"
                          (if (pi-ls--true (plist-get node :onPath)) "●" "○")
                          (plist-get node :text) (plist-get node :id))
                  (plist-get node :id)))
          nodes))

(defun pi-ls--go (server target how)
  "Move SERVER's session to the entry TARGET; HOW is a plist for `pi.navigateTree'."
  (pi-ls--command
   server "pi.navigateTree" (append (list :targetId target) how)
   (jsonrpc-lambda (&key cancelled editorText &allow-other-keys)
     (when (and editorText (not (eq editorText :null)))
       (kill-new editorText))
     (message (cond ((pi-ls--true cancelled) "pi: stopped; the session is where it was")
                    (editorText "pi: moved; the message is in the kill ring")
                    (t "pi: moved"))))))

;;;###autoload
(defun pi-ls-branch ()
  "Go to another place of the session's tree."
  (interactive)
  (let ((server (pi-ls--server)))
    (pi-ls--command
     server "pi.getTree" '(:filter "no-tools")
     (jsonrpc-lambda (&key nodes &allow-other-keys)
       (let* ((places (pi-ls--places nodes))
              (target (cdr (assoc (completing-read "Go to: " places nil t) places)))
              (summary (completing-read "What shall stay of the branch you leave: "
                                        '("No summary" "Summary" "Summary with instructions")
                                        nil t nil nil "No summary")))
         (pi-ls--go server target
                    (pcase summary
                      ("Summary" '(:summarize t))
                      ("Summary with instructions"
                       (list :summarize t :customInstructions (read-string "What matters: ")))
                      (_ nil))))))))

(provide 'pi-ls)
;;; pi-ls.el ends here
